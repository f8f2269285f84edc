// SPDX-License-Identifier: MIT OR Apache-2.0
// What C++'s header takes, for every compiler and standard. Prints what the agent gets; compiled
// with TRACKWAY_DISABLE or run without an agent, nothing may happen.
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>
#if __cplusplus >= 201703L
#include <cstddef>
#include <filesystem>
#include <string_view>
#endif
#if __cplusplus >= 202002L && __has_include(<span>)
#include <span>
#endif
#include <trackway/trackway.hpp>
#include <trackway/trackway.hpp> // including it again is harmless

#include "fake_agent.h"

enum class Phase : unsigned char { idle, busy };
enum class Far : std::int64_t { near, far = -5 };

TRACKWAY_ENUM(cxx, phase, (idle, Phase::idle), (busy, Phase::busy, 9), (other, 10));
TRACKWAY_ENUM(cxx, far, (near, Far::near), (far, Far::far));
TRACKWAY_EVENT(cxx, none, TRACKWAY_INFO);
TRACKWAY_EVENT(cxx, strings, TRACKWAY_INFO, (str, a), (u8, between), (text, b));
TRACKWAY_EVENT(cxx, terminated, TRACKWAY_INFO, (str, a));
TRACKWAY_EVENT(cxx, bytes, TRACKWAY_INFO, (seq, a, u8));
TRACKWAY_EVENT(cxx, words, TRACKWAY_INFO, (seq, a, u32), (seq, b, i64), (text, c));
TRACKWAY_EVENT(cxx, others, TRACKWAY_INFO, (seq, a, bool), (seq, b, f32), (seq, c, x64));
TRACKWAY_EVENT(cxx, arrays, TRACKWAY_INFO, (array, a, u16, 2));
TRACKWAY_EVENT(cxx, arrays_and_text, TRACKWAY_INFO, (array, a, u16, 2), (text, b));
TRACKWAY_EVENT(cxx, labels, TRACKWAY_INFO, (enum, a, cxx, phase, u8), (enum, b, cxx, far, i64));
TRACKWAY_EVENT(cxx, cut, TRACKWAY_INFO, (text, a), (seq, b, u32));
TRACKWAY_EVENT(cxx, pointer, TRACKWAY_INFO, (ptr, a), (bool, b));

// A string of somebody else's: data() and size() are all that is asked for.
struct Slice {
    const char *data() const { return "slice"; }
    unsigned size() const { return 5; }
};

// What has nothing to do with arrays, but converts.
struct Name {
    operator const char *() const { return "name"; }
};

static int evaluated;

static std::string touch()
{
    evaluated++;
    return "touched";
}

static void strings()
{
    const char array[8] = "array";
    const std::string string("std", 3);
    trackway(cxx, strings, "literal", 1, "literal");
    trackway(cxx, strings, array, 2, array);
    trackway(cxx, strings, string, 3, string);
    trackway(cxx, strings, Name(), 4, Name());
    trackway(cxx, strings, nullptr, 5, nullptr);
    trackway(cxx, strings, NULL, 5, NULL);
    trackway(cxx, strings, NULL, 5, string);
    trackway(cxx, terminated, NULL);
    trackway(cxx, strings, touch(), 6, touch());
    trackway(cxx, strings, std::string(), 7, std::string());
    trackway(cxx, strings, string, 8, Slice());
    trackway(cxx, strings, "in C", 9, string.data(), string.size());
    trackway(cxx, strings, "of a pair", 10, trackway::text(string.data(), 2));
    trackway(cxx, strings, "characters", 11, std::vector<char>(2, 'v'));
    trackway(cxx, terminated, string);
    trackway(cxx, terminated, "literal");
#if __cplusplus >= 201703L
    trackway(cxx, strings, std::filesystem::path("path"), 12, std::filesystem::path("path"));
    trackway(cxx, strings, "view", 13, std::string_view("view of more", 4));
    trackway(cxx, strings, "empty", 14, std::string_view());
#else
    trackway(cxx, strings, "path", 12, "path");
    trackway(cxx, strings, "view", 13, "view");
    trackway(cxx, strings, "empty", 14, "");
#endif
#ifdef __cpp_char8_t
    trackway(cxx, strings, u8"\u2026", 15, std::u8string(u8"\u2026"));
#else
    trackway(cxx, strings, "\xe2\x80\xa6", 15, "\xe2\x80\xa6");
#endif
}

static void sequences()
{
    const std::uint32_t array[2] = {1, 2};
    const std::vector<unsigned> numbers = {3};
    const std::array<long long, 1> longs = {{-1}};
    const std::vector<std::int64_t> sixes = {6};
    const void *const addresses[1] = {nullptr};
    trackway(cxx, words, array, {4, 5}, "c");
    trackway(cxx, words, numbers, longs, touch());
    trackway(cxx, words, std::vector<std::uint32_t>(), sixes, "c");
    trackway(cxx, words, {}, {}, "c");
    trackway(cxx, words, array, 1, sixes.data(), sixes.size(), "in C", 4);
    trackway(cxx, words, trackway::seq<std::uint32_t>(array, 1), longs, "c");
    trackway(cxx, bytes, std::string("ab"));
    trackway(cxx, bytes, std::vector<std::int8_t>().empty() ? std::vector<unsigned char>{7}
                                                            : std::vector<unsigned char>{8});
    trackway(cxx, bytes, std::array<Phase, 2>{{Phase::busy, Phase::idle}});
    trackway(cxx, others, {true, false}, std::vector<float>{1.0f}, addresses);
#if __cplusplus >= 201703L
    trackway(cxx, bytes, std::array<std::byte, 1>{std::byte{9}});
#else
    trackway(cxx, bytes, {9});
#endif
#if __cplusplus >= 202002L && __has_include(<span>)
    trackway(cxx, words, std::span(array), std::span<const long long>(longs), "span");
    trackway(cxx, arrays, std::span<const std::uint16_t, 2>(std::array<std::uint16_t, 2>{1, 2}));
#else
    trackway(cxx, words, array, longs, "span");
    trackway(cxx, arrays, std::array<std::uint16_t, 2>{{1, 2}});
#endif
    const std::uint16_t two[2] = {3, 4};
    trackway(cxx, arrays, two);
    trackway(cxx, arrays, two + 0);
    trackway(cxx, arrays_and_text, two, "text");
    trackway(cxx, arrays_and_text, nullptr, "text");
    trackway(cxx, arrays_and_text, std::array<std::uint16_t, 2>{{5, 6}}, "text");
    // A part of a longer array goes by a pointer.
    std::uint16_t three[3] = {7, 8, 9};
    trackway(cxx, arrays, &three[1]);
    trackway(cxx, arrays_and_text, NULL, "text", 4);
}

template <typename Value> static void of_template(const Value &value)
{
    trackway(cxx, strings, "template", 1, value);
}

static void others()
{
    const std::unique_ptr<int> owner(new int(1));
    trackway(cxx, none);
    trackway(cxx, labels, Phase::busy, Far::far);
    trackway(cxx, labels, 3, 4);
    trackway(cxx, pointer, nullptr, owner.get() != nullptr);
    of_template(std::string("of a template"));
    [](const std::vector<unsigned> &numbers) {
        trackway(cxx, words, numbers, {7}, "lambda");
    }({8, 9});
    trackway(cxx, cut, std::string(9000, 'x'), std::vector<std::uint32_t>(9000));
}

static void count(const struct trackway_abi_event *event, const unsigned char *payload,
                  std::size_t size)
{
    std::printf("%s %u", event->name, static_cast<unsigned>(size));
    for (std::size_t i = 0; i < size && size < 100; i++)
        std::printf(i ? "%02x" : " %02x", payload[i]);
    std::printf(fake_agent_cut ? " cut\n" : "\n");
}

int main()
{
    fake_agent_sink = count;
    for (int on = 0; on < 2; on++) {
        fake_agent_enable(on);
        strings();
        sequences();
        others();
        std::printf("evaluated %d\n", evaluated);
    }
}
