// SPDX-License-Identifier: MIT OR Apache-2.0
// A scope in a coroutine that begins on one thread and ends on another: the end names its begin.
#include <coroutine>
#include <cstdio>
#include <cstring>
#include <thread>
#include <trackway/trackway.hpp>

#include "fake_agent.h"

TRACKWAY_SCOPE_EVENT(coroutine, scope, TRACKWAY_INFO, (text, name));

static std::uint64_t last_scope;

static void print(const struct trackway_abi_event *event, const unsigned char *payload,
                  std::size_t)
{
    std::uint64_t scope;
    std::memcpy(&scope, payload, sizeof(scope));
    std::printf("%s%s\n", event->name, scope == last_scope ? ", the same scope" : "");
    last_scope = scope;
}

struct Task {
    struct promise_type {
        Task get_return_object()
        {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() {}
    };
    std::coroutine_handle<promise_type> handle;
};

static Task work(const char *name)
{
    trackway_scope(coroutine, scope, name);
    co_await std::suspend_always();
    std::puts("resumed");
    co_return;
}

int main()
{
    fake_agent_sink = print;
    fake_agent_enable(1);
    Task task = work("task");
    std::puts("suspended");
    std::thread([&] { task.handle.resume(); }).join();
    task.handle.destroy();
}
