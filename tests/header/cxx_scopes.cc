// SPDX-License-Identifier: MIT OR Apache-2.0
// Scopes are recorded with their ends, however they are left. Prints what the agent gets.
#include <cstdio>
#include <cstring>
#include <string>
#include <trackway/trackway.hpp>

#include "fake_agent.h"

TRACKWAY_SCOPE_EVENT(scopes, plain, TRACKWAY_INFO);
TRACKWAY_SCOPE_EVENT(scopes, named, TRACKWAY_DEBUG, (text, name), (u32, number));

static int evaluated;

static unsigned touch()
{
    return static_cast<unsigned>(++evaluated);
}

// Scopes end in the reverse order of their beginnings, and each end names its begin.
static void print(const struct trackway_abi_event *event, const unsigned char *payload,
                  std::size_t size)
{
    static std::uint64_t open[8];
    static int depth;
    std::uint64_t scope;
    std::memcpy(&scope, payload, sizeof(scope));
    if (std::strstr(event->name, "_begin"))
        open[depth++] = scope;
    else if (depth == 0 || open[--depth] != scope)
        std::printf("not the innermost scope's ");
    std::printf("%s, depth %d, level %d, more %u\n", event->name, depth, event->level,
                static_cast<unsigned>(size - sizeof(scope)));
}

static int nested(int depth)
{
    trackway_scope(scopes, named, "nested", touch());
    trackway_scope(scopes, plain);
    return depth ? nested(depth - 1) : 7;
}

static void left_early(int how)
{
    for (int i = 0; i < 2; i++) {
        trackway_scope(scopes, plain);
        if (how == i)
            continue;
        if (how == 2)
            break;
        std::puts("here");
    }
}

#ifdef __cpp_exceptions
static void left_by_exception()
{
    trackway_scope(scopes, named, std::string("thrown"), touch());
    throw 5;
}
#endif

template <typename T> struct Holder {
    T value;
    explicit Holder(T start) : value(start)
    {
        trackway_scope(scopes, named, "constructor", 1);
        value++;
    }
};

static void switched_inside()
{
    trackway_scope(scopes, plain);
    fake_agent_enable(0);
    {
        trackway_scope(scopes, named, "off", touch());
        fake_agent_enable(1);
        std::puts("on again"); // the begin was not recorded: nor is the end
    }
}

int main()
{
    fake_agent_sink = print;
    nested(1);
    std::printf("evaluated %d\n", evaluated);
    fake_agent_enable(1);
    nested(0);
    left_early(0);
    left_early(2);
#ifdef __cpp_exceptions
    try {
        left_by_exception();
    } catch (int) {
        std::puts("caught");
    }
#endif
    Holder<int> holder(3);
    switched_inside();
    std::printf("evaluated %d\n", evaluated);
}
