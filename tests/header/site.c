/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Functions that are one call and nothing else, to be disassembled. */
#include <trackway/trackway.h>

TRACKWAY_EVENT(site, none, TRACKWAY_INFO);
TRACKWAY_EVENT(site, three, TRACKWAY_INFO, (str, path), (u32, status), (u64, latency_us));

void site_none(void);
void site_three(const char *path, uint32_t status, uint64_t latency_us);
void site_printf(int number);

void site_none(void)
{
    trackway(site, none);
}

void site_three(const char *path, uint32_t status, uint64_t latency_us)
{
    trackway(site, three, path, status, latency_us);
}

void site_printf(int number)
{
    trackway_printf("number %d", number);
}
