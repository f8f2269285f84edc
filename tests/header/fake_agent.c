/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef _GNU_SOURCE /* g++ defines it itself */
#define _GNU_SOURCE
#endif
#include "fake_agent.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fake_agent_registrations;
int fake_agent_cut;
static uint32_t word;

static void print(const struct trackway_abi_event *event, const unsigned char *payload,
                  size_t payload_size)
{
    size_t i;
    printf("%s:%s", event->provider, event->name);
    for (i = 0; i < payload_size; i++)
        printf(i ? "%02x" : " %02x", payload[i]);
    printf("\n");
}

void (*fake_agent_sink)(const struct trackway_abi_event *event, const unsigned char *payload,
                        size_t payload_size) = print;

static void emit(struct trackway_abi_event *event, unsigned char *payload, size_t payload_size)
{
    volatile unsigned char sum = 0;
    size_t i;
    fake_agent_cut = (payload_size & TRACKWAY_ABI_CUT) != 0;
    payload_size &= ~TRACKWAY_ABI_CUT;
    if (payload_size > TRACKWAY_ABI_PAYLOAD_MAX)
        abort();
    /* The room that the contract promises: address sanitizers watch. */
    memset(payload - TRACKWAY_ABI_HEADROOM, 0xee, TRACKWAY_ABI_HEADROOM);
    for (i = 0; i < TRACKWAY_ABI_TAILROOM; i++)
        sum = (unsigned char)(sum + payload[payload_size + i]);
    fake_agent_sink(event, payload, payload_size);
}

void fake_agent_enable(int on)
{
    __atomic_store_n(&word, on ? 4u : 0u, __ATOMIC_RELAXED);
}

void trackway_abi_register(struct trackway_abi_event *const *begin,
                           struct trackway_abi_event *const *end)
{
    fake_agent_registrations++;
    for (; begin < end; begin++) {
        struct trackway_abi_event *event = *begin;
        if (!event)
            continue;
        if (event->version != TRACKWAY_ABI_VERSION || event->size != sizeof(*event))
            abort();
        event->emit = emit;
        __atomic_store_n(&event->enabled, &word, __ATOMIC_RELEASE);
    }
}

static void list_array(const unsigned char *words)
{
    int32_t begin_offset, end_offset;
    struct trackway_abi_event *const *entry, *const *end, *const *first;
    memcpy(&begin_offset, words, 4);
    memcpy(&end_offset, words + 4, 4);
    first = (struct trackway_abi_event *const *)(const void *)(words + begin_offset);
    end = (struct trackway_abi_event *const *)(const void *)(words + 4 + end_offset);
    for (entry = first; entry < end; entry++) {
        struct trackway_abi_event *const *other = first;
        if (!*entry)
            continue;
        while (*other != *entry)
            other++;
        if (other == entry) /* an event has an entry for each file that declares it */
            printf("  %s:%s level %d fields %d\n", (*entry)->provider, (*entry)->name,
                   (*entry)->level, (*entry)->field_count);
    }
}

static int list_module(struct dl_phdr_info *info, size_t size, void *unused)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    int i;
    (void)size;
    (void)unused;
    for (i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const unsigned char *note, *end;
        /* Others may be nowhere: at a null pointer, with which one does not count. */
        if (header->p_type != PT_NOTE || header->p_align > 4)
            continue;
        note = (const unsigned char *)(info->dlpi_addr + header->p_vaddr);
        end = note + header->p_memsz;
        while (note + 12 <= end) {
            uint32_t sizes[3];
            const unsigned char *name = note + 12, *descriptor;
            memcpy(sizes, note, sizeof(sizes));
            descriptor = name + ((sizes[0] + 3) & ~3u);
            if (sizes[0] == 9 && sizes[2] == 1 && memcmp(name, "Trackway", 9) == 0) {
                uint32_t version;
                memcpy(&version, descriptor, 4);
                printf("%s: version %u, %u bytes\n",
                       slash ? slash + 1 : *info->dlpi_name ? info->dlpi_name : "program",
                       version, sizes[1]);
                list_array(descriptor + 4);
            }
            note = descriptor + ((sizes[1] + 3) & ~3u);
        }
    }
    return 0;
}

void fake_agent_list_notes(void)
{
    dl_iterate_phdr(list_module, NULL);
    fflush(stdout);
}
