// SPDX-License-Identifier: MIT OR Apache-2.0
// Trackway's events, as a C++ program has them; each loop has its like in trackway.c.
#include <string>
#include <string_view>
#include <vector>

#include <trackway/trackway.hpp>

TRACKWAY_EVENT(lab, number, TRACKWAY_INFO, (u32, value));
TRACKWAY_EVENT(lab, record, TRACKWAY_INFO, (str, name), (u32, size), (u64, index));
TRACKWAY_EVENT(lab, views, TRACKWAY_INFO, (text, name), (seq, sizes, u32), (u64, index));
TRACKWAY_SCOPE_EVENT(lab, scope, TRACKWAY_INFO, (u32, value));

extern "C" {
void cxx_number(std::uint64_t first, std::uint64_t count);
void cxx_record(std::uint64_t first, std::uint64_t count);
void cxx_views(std::uint64_t first, std::uint64_t count);
void cxx_scope(std::uint64_t first, std::uint64_t count);
}

// The compiler must not know what is in it.
template <typename T> static const T &unknown(const T &value)
{
    __asm__ volatile("" : : "r"(&value) : "memory");
    return value;
}

void cxx_number(std::uint64_t first, std::uint64_t count)
{
    for (std::uint64_t i = first; i < first + count; i++)
        trackway(lab, number, static_cast<std::uint32_t>(i));
}

void cxx_record(std::uint64_t first, std::uint64_t count)
{
    const std::string name = "a name of 16 by";
    for (std::uint64_t i = first; i < first + count; i++)
        trackway(lab, record, unknown(name), 42, i);
}

void cxx_views(std::uint64_t first, std::uint64_t count)
{
    const std::string_view name = "a name of 16 by";
    const std::vector<std::uint32_t> sizes = {1, 2, 3, 4};
    for (std::uint64_t i = first; i < first + count; i++)
        trackway(lab, views, unknown(name), unknown(sizes), i);
}

void cxx_scope(std::uint64_t first, std::uint64_t count)
{
    for (std::uint64_t i = first; i < first + count; i += 2)
        trackway_scope(lab, scope, static_cast<std::uint32_t>(i));
}
