// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions that are one call and nothing else, to be disassembled beside those in C's forms.
#include <string>
#include <vector>
#include <trackway/trackway.hpp>

TRACKWAY_EVENT(site, containers, TRACKWAY_INFO, (text, path), (u32, status), (seq, ids, u32));
TRACKWAY_SCOPE_EVENT(site, work, TRACKWAY_INFO);

extern "C" {
void site_containers(const std::string &path, unsigned status, const std::vector<unsigned> &ids);
void site_pointers(const char *path, std::size_t size, unsigned status, const unsigned *ids,
                   std::size_t count);
void site_scope();
void site_nothing();
}

void site_containers(const std::string &path, unsigned status, const std::vector<unsigned> &ids)
{
    trackway(site, containers, path, status, ids);
}

void site_pointers(const char *path, std::size_t size, unsigned status, const unsigned *ids,
                   std::size_t count)
{
    trackway(site, containers, path, size, status, ids, count);
}

void site_scope()
{
    trackway_scope(site, work);
    site_nothing();
}
