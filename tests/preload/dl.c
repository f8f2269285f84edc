/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DL FOLDER: records of the dl helper, see expect.h. FOLDER has libplugin.so, which needs
 * libneeded.so, and is in the program's DT_RUNPATH. The plugin's build-id is 0xC0FFEE11, its debug
 * link plugin.debug; libneeded.so has neither.
 */
#define _GNU_SOURCE
#include "expect.h"
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <sys/wait.h>

static char plugin[PATH_MAX], needed[PATH_MAX];

struct place {
    const char *name; /* end of its name */
    unsigned long baddr, memsz;
};

static int find(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct place *place = argument;
    unsigned long low = ~0UL, high = 0;
    const size_t length = strlen(info->dlpi_name), wanted = strlen(place->name);
    (void)size;
    if (length < wanted || strcmp(info->dlpi_name + length - wanted, place->name) != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && header->p_vaddr < low)
            low = header->p_vaddr;
        if (header->p_type == PT_LOAD && header->p_vaddr + header->p_memsz > high)
            high = header->p_vaddr + header->p_memsz;
    }
    place->baddr = info->dlpi_addr + low;
    place->memsz = high - low;
    return 1;
}

static struct place place_of(const char *name)
{
    struct place place = {name, 0, 0};
    CHECK(dl_iterate_phdr(find, &place) == 1);
    return place;
}

/* The events with a plugin's details. */
static void details(const char *provider, unsigned long baddr)
{
    expect("%s:build_id baddr = 0x%lX, _build_id_length = 4, "
           "build_id = [ [0] = 0xC0, [1] = 0xFF, [2] = 0xEE, [3] = 0x11 ]", provider, baddr);
    expect("%s:debug_link baddr = 0x%lX, crc = CRC, filename = \"plugin.debug\"", provider, baddr);
}

static struct place loaded(const char *path, const char *name, int is_plugin)
{
    const struct place place = place_of(name);
    expect("lttng_ust_lib:load baddr = 0x%lX, memsz = %lu, path = \"%s\", has_build_id = %d, "
           "has_debug_link = %d", place.baddr, place.memsz, path, is_plugin, is_plugin);
    if (is_plugin)
        details("lttng_ust_lib", place.baddr);
    return place;
}

static void opened(unsigned long baddr, unsigned long memsz)
{
    expect("lttng_ust_dl:dlopen baddr = 0x%lX, memsz = %lu, flags = 0x%X, path = \"%s\", "
           "has_build_id = 1, has_debug_link = 1", baddr, memsz, RTLD_NOW, plugin);
    details("lttng_ust_dl", baddr);
}

static void closed(void *handle, unsigned long baddr)
{
    expect("lttng_ust_dl:dlclose baddr = 0x%lX", baddr);
    CHECK(dlclose(handle) == 0);
}

static void unloaded(struct place first, struct place second)
{
    expect("lttng_ust_lib:unload baddr = 0x%lX", first.baddr);
    expect("lttng_ust_lib:unload baddr = 0x%lX", second.baddr);
}

static int dump(struct dl_phdr_info *info, size_t size, void *program)
{
    struct place place = {info->dlpi_name, 0, 0};
    (void)find(info, size, &place);
    if (!*info->dlpi_name)
        expect("program 0x%lX %lu %s", place.baddr, place.memsz, (const char *)program);
    else
        expect("object 0x%lX %lu", place.baddr, place.memsz);
    return 0;
}

static void by_path(void)
{
    struct place first, second;
    void *handle, *again;
    errno = 77;
    handle = dlopen(plugin, RTLD_NOW);
    CHECK(handle && dlsym(handle, "plugged"));
    first = place_of("/libplugin.so");
    opened(first.baddr, first.memsz);
    loaded(plugin, "/libplugin.so", 1);
    second = loaded(needed, "/libneeded.so", 0);
    again = dlopen(plugin, RTLD_NOW);
    CHECK(again == handle);
    opened(first.baddr, first.memsz);
    closed(again, first.baddr);
    closed(handle, first.baddr);
    unloaded(first, second);
    CHECK(!dlopen("/missing.so", RTLD_NOW) && strstr(dlerror(), "/missing.so"));
}

/* The loader looks where we say that it should: DT_RUNPATH. Recorded when we come by again. */
static void by_name(void)
{
    struct place first, second;
    void *handle = dlopen("libplugin.so", RTLD_NOW);
    CHECK(handle);
    first = loaded(plugin, "/libplugin.so", 1);
    second = loaded(needed, "/libneeded.so", 0);
    closed(handle, first.baddr);
    unloaded(first, second);
}

static void in_a_namespace(void)
{
    struct link_map *map;
    Lmid_t nsid;
    void *handle = dlmopen(LM_ID_NEWLM, plugin, RTLD_NOW);
    CHECK(handle && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0);
    CHECK(dlinfo(handle, RTLD_DI_LMID, &nsid) == 0);
    expect("lttng_ust_dl:dlmopen baddr = 0x%lX, memsz = MEMSZ, nsid = %ld, flags = 0x%X, "
           "path = \"%s\", has_build_id = 1, has_debug_link = 1", (unsigned long)map->l_addr,
           (long)nsid, RTLD_NOW, plugin);
    details("lttng_ust_dl", (unsigned long)map->l_addr);
    closed(handle, (unsigned long)map->l_addr);
}

int main(int argc, char **argv)
{
    char program[PATH_MAX];
    int status;
    pid_t child;
    CHECK(argc == 2 && realpath(argv[0], program));
    snprintf(plugin, sizeof(plugin), "%.4000s/libplugin.so", argv[1]);
    snprintf(needed, sizeof(needed), "%.4000s/libneeded.so", argv[1]);
    expect_begin();
    dl_iterate_phdr(dump, program);
    by_path();
    by_name();
    in_a_namespace();
    /* A child of fork records its objects at its next call. */
    child = fork();
    if (child == 0) {
        expect("child");
        CHECK(!dlopen("/missing.so", RTLD_NOW));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < 200; i++) {
        void *handle = dlopen(plugin, RTLD_NOW);
        CHECK(handle && dlclose(handle) == 0);
    }
    expect_end();
    return 0;
}
