/* Sets contexts of all kinds, and emits in between. The number of an event selects the expected
 * values; see ../record/contexts.rs. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <trackway/context.h>
#include <unistd.h>

TRACKWAY_CONTEXT(myapp, request_id, u64);
TRACKWAY_CONTEXT(myapp, user, str);
TRACKWAY_CONTEXT(myapp, load, f64);
TRACKWAY_CONTEXT(myapp, delta, i16);
TRACKWAY_EVENT(myapp, step, TRACKWAY_INFO, (u32, number));
TRACKWAY_EVENT(myapp, large, TRACKWAY_INFO, (u32, number), (text, bytes));

static void *thread(void *unused)
{
    trackway(myapp, step, 20);
    trackway_set_context(myapp, request_id, 20);
    trackway(myapp, step, 21);
    return unused;
}

static void wait_for(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        exit(1);
}

int main(void)
{
    struct trackway_abi_context_value before;
    static char bytes[8192];
    pthread_t other;
    pid_t child;

    trackway(myapp, step, 0);
    trackway_set_context(myapp, request_id, UINT64_MAX);
    trackway(myapp, step, 1);
    trackway_set_context(myapp, user, "alice");
    trackway_set_context(myapp, load, -2.5);
    trackway_set_context(myapp, delta, -7);
    trackway(myapp, step, 2);
    trackway_get_context(myapp, request_id, &before);
    trackway_set_context(myapp, request_id, 3);
    trackway_set_context(myapp, user, "0123456789012345678901234567890123456789");
    trackway(myapp, step, 3);
    trackway_put_context(myapp, request_id, &before);
    trackway_clear_context(myapp, user);
    trackway(myapp, step, 4);
    trackway_set_context(myapp, request_id, 5);
    trackway_set_context(myapp, user, "");
    child = fork();
    if (child == 0) {
        trackway(myapp, step, 10);
        trackway_set_context(myapp, request_id, 11);
        trackway(myapp, step, 11);
        _exit(0);
    }
    wait_for(child);
    trackway(myapp, step, 5);
    if (pthread_create(&other, NULL, thread, NULL) != 0 || pthread_join(other, NULL) != 0)
        return 1;
    memset(bytes, 'x', sizeof(bytes));
    trackway_set_context(myapp, user, "0123456789012345678901234567890");
    trackway(myapp, large, 6, bytes, sizeof(bytes));
    trackway_clear_context(myapp, load);
    trackway(myapp, step, 7);
    return 0;
}
