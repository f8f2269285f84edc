/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lives of processes that become another user. Started by root: each mode takes steps as root in
 * some streams and as the user `nobody` in others, and reports faults by its exit status.
 */
#define _GNU_SOURCE
#include "steps.h"
#include <arpa/inet.h>
#include <grp.h>
#include <link.h>
#include <linux/securebits.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <trackway/dynamic.h>

enum { NOBODY = 65534, THREADS = 3 };

static char *self;
static volatile int done;

/* Whether a file of this name's beginning is mapped. */
static int is_mapped(const char *name)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps))
        found |= strstr(line, name) != NULL;
    if (maps)
        fclose(maps);
    return found;
}

static void become_nobody(void)
{
    if (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        _exit(96);
}

/* Root's window is gone. (Ours has no name in the maps of the process that made it.) */
static void expect_our_window(void)
{
    if (is_mapped("/trackway-0-v"))
        _exit(95);
}

/* For good: before as root, after as `nobody`, then a child and an exec. */
static void mode_drop(long count)
{
    take_steps(new_stream(), count);
    become_nobody();
    expect_our_window();
    take_steps(new_stream(), count);
    const pid_t child = fork();
    if (child == 0) {
        take_steps(new_stream(), count);
        execl(self, self, "steps", "10", (char *)NULL);
        _exit(94);
    }
    expect(child, 0);
    take_steps(new_stream(), count);
}

static void mode_steps(long count)
{
    take_steps(new_stream(), count);
}

/* For a while, in every way: one stream, all of it root's. */
static void mode_temporary(long count)
{
    const unsigned who = new_stream();
    for (long i = 0; i < count; i++) {
        step(who);
        if (seteuid(NOBODY) != 0)
            _exit(96);
        step(who);
        if (geteuid() != NOBODY || seteuid(0) != 0)
            _exit(95);
        step(who);
        if (setreuid(NOBODY, 0) != 0)
            _exit(94);
        step(who);
        if (setresuid(0, NOBODY, 0) != 0)
            _exit(93);
        step(who);
        if (setresuid(0, 0, 0) != 0)
            _exit(92);
    }
    if (setuid(0) != 0)
        _exit(91);
    step(who);
}

static void *until_done(void *unused)
{
    const unsigned who = new_stream();
    while (!done)
        step(who);
    return unused;
}

static void wait_for_steps(unsigned who, uint64_t more)
{
    const uint64_t then = steps->streams[who].returned + more;
    while (steps->streams[who].returned < then)
        usleep(100);
}

static void start_threads(pthread_t *threads)
{
    const unsigned first = steps->next;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, until_done, NULL) != 0)
            _exit(96);
    for (unsigned who = first; who < first + THREADS; who++)
        wait_for_steps(who, 100);
}

/*
 * Threads in full flight when their process becomes the user `nobody`: streams 0 to 2. Their
 * numbers before and after the change are stored at streams 100 and 200: events emitted before
 * belong to root, events emitted afterwards to `nobody`.
 */
static void mode_threads(long pause_us)
{
    pthread_t threads[THREADS];
    start_threads(threads);
    usleep((useconds_t)pause_us);
    for (unsigned who = 0; who < THREADS; who++)
        steps->streams[100 + who].started = steps->streams[who].returned;
    become_nobody();
    for (unsigned who = 0; who < THREADS; who++)
        steps->streams[200 + who].started = steps->streams[who].started;
    for (unsigned who = 0; who < THREADS; who++)
        wait_for_steps(who, 100);
    done = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* Capabilities of this thread and of those that it makes do not go with the user. */
static void keep_capabilities(void)
{
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) != 0)
        _exit(96);
}

/* Away and back by CAP_SETUID, again and again. */
static void go_and_come_back(unsigned home, unsigned away, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        take_steps(home, 5);
        if (setresuid(NOBODY, NOBODY, NOBODY) != 0)
            _exit(95);
        take_steps(away, 5);
        if (setresuid(0, 0, 0) != 0)
            _exit(94);
    }
    take_steps(home, 5);
    if (!is_mapped("/trackway-0-v") || is_mapped("/trackway-65534-v"))
        _exit(93);
}

static void mode_back(long rounds)
{
    const unsigned home = new_stream(), away = new_stream();
    keep_capabilities();
    go_and_come_back(home, away, rounds);
}

/* The same while another thread traces: stream 2. */
static void mode_back_threads(long rounds)
{
    pthread_t other;
    const unsigned theirs[] = {new_stream(), new_stream(), steps->next};
    keep_capabilities();
    if (pthread_create(&other, NULL, until_done, NULL) != 0)
        _exit(96);
    wait_for_steps(theirs[2], 100);
    go_and_come_back(theirs[0], theirs[1], rounds);
    done = 1;
    pthread_join(other, NULL);
}

/* A vfork child that becomes `nobody` and execs: this does not change its parent. */
static void mode_vfork(long children)
{
    const unsigned who = new_stream();
    for (volatile long i = 0; i < children; i++) {
        step(who);
        const pid_t child = vfork();
        if (child == 0) {
            if (setuid(NOBODY) != 0)
                _exit(95);
            execl(self, self, "steps", "10", (char *)NULL);
            _exit(96);
        }
        step(who);
        expect(child, 0);
    }
    if (!is_mapped("/trackway-0-v"))
        _exit(94);
    step(who);
}

static int become_nobody_alone(void *unused)
{
    (void)unused;
    return syscall(SYS_getuid) == 0 && setuid(NOBODY) == 0 ? 0 : 92;
}

static int end_at_once(void *unused)
{
    (void)unused;
    return 0;
}

/*
 * After a child by clone(2) that shared memory and did not make its parent wait, the process, and a
 * child that it forks, are independent: streams 0 and 2 belong to root, 1 and 3 to `nobody`.
 */
static void mode_cloned(long count)
{
    static char stack[64 << 10] __attribute__((aligned(16)));
    const unsigned first = new_stream(), last = new_stream();
    const unsigned its_first = new_stream(), its_last = new_stream();
    take_steps(first, count);
    expect(clone(end_at_once, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL), 0);
    take_steps(first, count);
    const pid_t child = fork();
    if (child == 0) {
        take_steps(its_first, count);
        become_nobody();
        expect_our_window();
        take_steps(its_last, count);
        _exit(0);
    }
    expect(child, 0);
    /* A child of that kind that becomes another user does not take its parent along. */
    expect(clone(become_nobody_alone, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL), 0);
    if (!is_mapped("/trackway-0-v"))
        _exit(93);
    become_nobody();
    expect_our_window();
    take_steps(last, count);
}

/* Another root directory first: there is no window there. */
static void mode_chroot(long count)
{
    take_steps(new_stream(), count);
    if (chroot(".") != 0)
        _exit(95);
    take_steps(new_stream(), count);
    become_nobody();
    take_steps(new_stream(), count);
}

/* The fork child of a process with threads: no recording has it once it is `nobody`'s. */
static void mode_forked(long count)
{
    pthread_t threads[THREADS];
    start_threads(threads);
    const unsigned its = new_stream(), later = new_stream();
    const pid_t child = fork();
    if (child == 0) {
        take_steps(its, count);
        become_nobody();
        take_steps(later, count);
        _exit(is_mapped("/trackway-0-v"));
    }
    expect(child, 0);
    done = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static pthread_barrier_t in_the_list;

/* Holds the loader's list of modules until the process belongs to `nobody`. */
static int hold(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)info, (void)size, (void)unused;
    pthread_barrier_wait(&in_the_list);
    while (!done)
        usleep(100);
    return 1;
}

static void *look_at_modules(void *unused)
{
    dl_iterate_phdr(hold, NULL);
    return unused;
}

/* A thread waits for the change while it has the loader's list of modules. */
static void mode_loader(long count)
{
    pthread_t other;
    take_steps(new_stream(), count);
    if (pthread_barrier_init(&in_the_list, NULL, 2) != 0 ||
        pthread_create(&other, NULL, look_at_modules, NULL) != 0)
        _exit(96);
    pthread_barrier_wait(&in_the_list);
    become_nobody();
    expect_our_window();
    take_steps(new_stream(), count);
    done = 1;
    pthread_join(other, NULL);
    take_steps(new_stream(), count);
}

static void *go_until_done(void *unused)
{
    while (!done)
        if (setresuid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(0, 0, 0) != 0)
            _exit(94);
    return unused;
}

/*
 * Children forked while another thread changes the user to and fro. A child has the user of the
 * moment, and is recorded there, in stream 0 as root, in stream 1 as `nobody`; and it can change
 * its user itself.
 */
static void fork_midway(long children, int own_namespaces)
{
    pthread_t other;
    const int namespace = own_namespaces ? open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC) : -1;
    const unsigned ours = new_stream(), theirs = new_stream();
    keep_capabilities();
    if (pthread_create(&other, NULL, go_until_done, NULL) != 0)
        _exit(96);
    for (long i = 0; i < children; i++) {
        /* A thread may create a namespace for its children if they are in its own now. */
        if (own_namespaces && (setns(namespace, CLONE_NEWPID) || unshare(CLONE_NEWPID)))
            _exit(77);
        const pid_t child = fork();
        if (child == 0) {
            const int is_root = getuid() == 0;
            /* The change to the window that a thread of the parent had begun is not made. */
            if (is_mapped("/trackway-0-v") != is_root || is_mapped("/trackway-65534-v") == is_root)
                _exit(95);
            step(is_root ? ours : theirs);
            if (is_root) {
                if (setresuid(NOBODY, NOBODY, NOBODY) != 0)
                    _exit(92);
                step(theirs);
            }
            _exit(0);
        }
        expect(child, 0);
    }
    done = 1;
    pthread_join(other, NULL);
}

static void mode_midway(long children)
{
    fork_midway(children, 0);
}

/* The program is the first of its namespace, and so are its children of theirs: number 1 all. */
static void mode_midway_first(long children)
{
    if (getpid() != 1)
        _exit(77);
    fork_midway(children, 1);
}

static const struct trackway_dynamic *describe_step(void)
{
    static const struct trackway_abi_field fields[] = {
        {"who", NULL, TRACKWAY_ABI_U32, TRACKWAY_ABI_SCALAR, 0, 0},
        {"number", NULL, TRACKWAY_ABI_U64, TRACKWAY_ABI_SCALAR, 0, 0},
        {"pid", NULL, TRACKWAY_ABI_I32, TRACKWAY_ABI_SCALAR, 0, 0},
        {"tid", NULL, TRACKWAY_ABI_I32, TRACKWAY_ABI_SCALAR, 0, 0},
    };
    const struct trackway_dynamic *event = NULL;
    if (trackway_dynamic_describe("life", "step", TRACKWAY_INFO, fields, 4, &event) != 0)
        _exit(89);
    return event;
}

/* Steps by an event that was described at run time. */
static void take_described_steps(const struct trackway_dynamic *event, unsigned who, long count)
{
    struct stream *stream = &steps->streams[who];
    for (long i = 0; i < count; i++) {
        const struct trackway_value values[] = {
            {{.u = who}, 0},
            {{.u = stream->started++}, 0},
            {{.i = syscall(SYS_getpid)}, 0},
            {{.i = syscall(SYS_gettid)}, 0},
        };
        if (trackway_dynamic_record(event, values, 4) != 0)
            _exit(88);
        stream->returned++;
    }
}

/* Events described at run time follow the change; streams by user: 0 root, 1 `nobody`, 2 root
 * again. */
static void mode_described(long count)
{
    const struct trackway_dynamic *event = describe_step();
    const unsigned first = new_stream(), second = new_stream(), third = new_stream();
    keep_capabilities();
    take_described_steps(event, first, count);
    if (setresuid(NOBODY, NOBODY, NOBODY) != 0)
        _exit(96);
    take_described_steps(event, second, count);
    if (describe_step() != event || !trackway_dynamic_enabled(event))
        _exit(95);
    take_described_steps(event, second, count);
    if (setresuid(0, 0, 0) != 0)
        _exit(94);
    if (!trackway_dynamic_enabled(event) || describe_step() != event)
        _exit(93);
    take_described_steps(event, third, count);
}

/*
 * In no window, because the user may change again: events described there are off, and turn on with
 * the next window. Streams 0 and 4 belong to root, 2 and 3 to `nobody`, 1 to no recording.
 */
static void mode_nowhere(long count)
{
    const unsigned first = new_stream();
    for (int i = 0; i < 4; i++)
        (void)new_stream();
    keep_capabilities();
    take_steps(first, count);
    if (setresuid(NOBODY, NOBODY, NOBODY - 1) != 0)
        _exit(96);
    const struct trackway_dynamic *event = describe_step();
    if (trackway_dynamic_enabled(event) || trackway_enabled(life, step))
        _exit(95);
    take_steps(first + 1, count);
    take_described_steps(event, first + 1, count);
    if (setresuid(NOBODY, NOBODY, NOBODY) != 0)
        _exit(94);
    take_described_steps(event, first + 2, count);
    take_steps(first + 3, count);
    if (setresuid(0, 0, 0) != 0)
        _exit(93);
    take_steps(first + 4, count);
    take_described_steps(event, first + 4, count);
}

/* Started with more rights than its user has (set-user-ID root): root's window or none. */
static void mode_secure(long count)
{
    const unsigned who = new_stream();
    take_steps(who, count);
    if (geteuid() != 0 || is_mapped("/trackway-65534-v"))
        _exit(96);
    if (setuid(getuid()) != 0)
        _exit(95);
    take_steps(who, count);
    if (getuid() != NOBODY || is_mapped("/trackway-0-v") || is_mapped("/trackway-65534-v"))
        _exit(94);
}

/*
 * As nginx does it: a master of root's binds a port below 1024 and stays root; workers that it
 * forks become `nobody`, then serve. One that ends is replaced. Even streams belong to root.
 */
static void mode_server(long workers)
{
    const unsigned master = new_stream();
    struct sockaddr_in address = {.sin_family = AF_INET};
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    pid_t pids[16];
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (workers > 16 || listener < 0 || new_stream() != 1 ||
        bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, 8) != 0)
        _exit(96);
    take_steps(master, 10);
    for (int generation = 0; generation < 2; generation++) {
        for (long i = 0; i < workers; i++) {
            const unsigned before = new_stream(), after = new_stream();
            pids[i] = fork();
            if (pids[i] == 0) {
                take_steps(before, 10);
                become_nobody();
                expect_our_window();
                for (int request = 0; request < 100; request++)
                    step(after);
                _exit(5);
            }
            step(master);
        }
        for (long i = 0; i < workers; i++) {
            expect(pids[i], 5);
            step(master);
        }
    }
    take_steps(master, 10);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(long number);
    } modes[] = {
        {"drop", mode_drop},         {"steps", mode_steps},
        {"temporary", mode_temporary}, {"threads", mode_threads},
        {"back", mode_back},         {"back-threads", mode_back_threads},
        {"vfork", mode_vfork},       {"chroot", mode_chroot},
        {"forked", mode_forked},     {"secure", mode_secure},
        {"server", mode_server},     {"loader", mode_loader},
        {"midway", mode_midway},     {"midway-first", mode_midway_first},
        {"described", mode_described}, {"cloned", mode_cloned},
        {"nowhere", mode_nowhere},
    };
    self = argv[0];
    steps_open();
    for (size_t i = 0; argc > 2 && i < sizeof(modes) / sizeof(modes[0]); i++)
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run(atol(argv[2]));
            return 0;
        }
    return 2;
}
