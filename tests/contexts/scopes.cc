// Contexts in scopes: what there was before comes back, however the scope is left.
#include <stdexcept>
#include <trackway/context.h>
#include <trackway/trackway.hpp>

TRACKWAY_CONTEXT(myapp, request_id, u64);
TRACKWAY_CONTEXT(myapp, user, str);
TRACKWAY_CONTEXT(myapp, load, f32);
TRACKWAY_CONTEXT(myapp, delta, i8);
TRACKWAY_EVENT(myapp, step, TRACKWAY_INFO, (u32, number));

static void inner()
{
    trackway_context_scope(myapp, request_id, 8u);
    trackway_context_scope(myapp, user, "alice");
    trackway(myapp, step, 2u);
    throw std::runtime_error("left");
}

int main()
{
    trackway(myapp, step, 0u);
    {
        trackway_context_scope(myapp, request_id, 7u);
        trackway(myapp, step, 1u);
        try {
            inner();
        } catch (const std::runtime_error &) {
        }
        trackway(myapp, step, 3u);
    }
    trackway(myapp, step, 5u);
    return 0;
}
