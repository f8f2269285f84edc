/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The program that is tortured: processes, threads and signal handlers that record as fast as they
 * can, end, start again, fork, exec, hop between processors and are killed.
 *
 *     workload FILE main|process|short|dying NUMBER [SEED]
 *
 * FILE is shared with the test that runs it (tests/torture/shared.rs draws it): first a page of
 * words, the orders, then the *lanes*. A lane is one writer: a thread, or one signal's handler in a
 * thread. Before an event, its lane's `started` is raised, after it, `returned`. Whichever process
 * is killed when, the number of accounted events lies between the sums of the two.
 *
 * An event carries its lane and its number in the lane; all its other contents follow from that
 * number and the lane's seed (`hash`), so a torn, mixed or damaged record is detected.
 *
 * Chance: each thread has a generator of its own, whose seed comes from the generator of its
 * creator. So a thread's actions, their order and their sizes follow from the round's seed; their
 * times depend on the kernel.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <trackway/trackway.h>
#include <unistd.h>

/* More events than have short ids (30), so that both short forms of the record header occur. */
#define TINIES(X)                                                                                 \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)         \
    X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30)     \
    X(31) X(32) X(33) X(34) X(35) X(36) X(37) X(38) X(39)
#define TINY_COUNT 40
#define DECLARE_TINY(n) TRACKWAY_EVENT(torture, tiny##n, TRACKWAY_INFO, (u32, lane), (u32, seq));
TINIES(DECLARE_TINY)
TRACKWAY_EVENT(torture, full, TRACKWAY_INFO, (u16, process), (u16, thread), (bool, in_signal),
               (u32, lane), (u64, seq), (str, text), (seq, numbers, u32));

/* --- The shared file -------------------------------------------------------------------------- */

enum word {
    STOP,        /* not 0: end, all processes */
    LANES_USED,  /* lanes taken; lane 0 is unused */
    BUDGET,      /* bytes that may still be recorded, all together */
    DRIVER,      /* process id of the test; without it, stop */
    SEED,
    DURATION_MS,
    PROCESSES,
    THREADS,     /* of each process, without its leader */
    ALARM_US,    /* interval of SIGALRM, 0: none */
    DIRECTED_US, /* interval of SIGUSR1 to threads by turns, 0: none */
    FORKS,       /* not 0: leaders fork children that record */
    EXECS,       /* not 0: some of these exec */
    VFORKS,      /* not 0: leaders vfork children that record */
    KILLS,       /* not 0: parents kill children at random moments */
    HOPS,        /* not 0: threads move between processors */
    NICES,       /* not 0: threads change their priority */
    RESTARTS,    /* not 0: threads end and others start */
    BODY_MAX,    /* largest payload, in bytes */
    CLAIMS,      /* not 0: some processes (those that exec) do without restartable sequences */
    PACE,        /* events after which a thread sleeps a little, 0: never */
    STOPS,       /* not 0: processes are stopped for a moment, wherever they are */
    KILLED,      /* processes killed */
    STARTED,     /* processes started */
    END_NS,      /* CLOCK_MONOTONIC at which to stop */
};

struct lane {
    _Atomic uint64_t started;
    _Atomic uint64_t returned;
    uint32_t pid, tid;
    uint16_t process, thread;
    uint32_t in_signal;
    uint64_t credit; /* bytes that it may record before it takes more */
    uint64_t seed;   /* of its events */
    char name[16];
};
_Static_assert(sizeof(struct lane) == 64, "shared.rs reads 64 bytes a lane");

enum { LANES_MAX = 1 << 16, THREADS_MAX = 16, CHILDREN_MAX = 8, LANES_PER_THREAD = 3 };
enum { VFORKED = 0xffff }; /* thread number of a vfork child, for which its parent takes a lane */

static _Atomic uint64_t *words;
static struct lane *lanes;
static const char *file_name;
static char **claiming_environment;
static uint16_t process_number;
static uint64_t process_seed;
static bool stormy; /* our handlers are installed */
static __thread uint32_t own_lane __attribute__((tls_model("initial-exec")));

static uint64_t get(enum word word)
{
    return atomic_load_explicit(&words[word], memory_order_relaxed);
}

static void stop(void)
{
    atomic_store(&words[STOP], 1);
}

static void map_file(const char *name)
{
    const size_t bytes = 4096 + sizeof(struct lane) * LANES_MAX;
    const int fd = open(name, O_RDWR | O_CLOEXEC);
    const int access = PROT_READ | PROT_WRITE;
    void *start = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, access, MAP_SHARED, fd, 0);
    if (start == MAP_FAILED) {
        perror(name);
        exit(2);
    }
    close(fd);
    file_name = name;
    words = start;
    lanes = (struct lane *)((char *)start + 4096);
}

/* --- Chance: the same seed, the same decisions ------------------------------------------------ */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static uint64_t next(uint64_t *state)
{
    return mix(*state += 0x9e3779b97f4a7c15);
}

static uint64_t below(uint64_t *state, uint64_t bound)
{
    return next(state) % bound;
}

/* --- Recording -------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t seed, uint64_t seq)
{
    return mix(seed + (seq + 1) * 0x9e3779b97f4a7c15);
}

static void emit_tiny(uint64_t which, uint32_t number, uint32_t seq)
{
    switch (which) {
#define EMIT_TINY(n)                                                                              \
    case n:                                                                                       \
        trackway(torture, tiny##n, number, seq);                                                  \
        break;
        TINIES(EMIT_TINY)
    }
}

/* Text and numbers of an event; tests/torture/trace.rs makes the same. Returns its payload's size,
 * in bytes. */
static uint64_t emit_full(const struct lane *lane, uint32_t number, uint64_t seq, uint64_t h)
{
    char text[4096];
    uint32_t numbers[1024];
    const uint64_t size_class = h >> 8 & 63;
    const uint64_t most = size_class == 0 ? get(BODY_MAX) : size_class < 8 ? 512 : 64;
    const uint64_t fixed = 2 + 2 + 1 + 4 + 8 + 1 + 4;
    const uint64_t room = (most < get(BODY_MAX) ? most : get(BODY_MAX)) - fixed;
    /* Never empty: babeltrace2 2.0.4 shows the string before it instead of an empty one. */
    const uint64_t length = 1 + (h >> 16) % room;
    const uint64_t count = (h >> 40) % ((room - length) / 4 + 1);
    for (uint64_t i = 0; i < length; i++)
        text[i] = (char)('a' + (h + i * 7) % 26);
    text[length] = 0;
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = (uint32_t)(h + i * 0x9e3779b9);
    trackway(torture, full, lane->process, lane->thread, lane->in_signal != 0, number, seq, text,
             numbers, count);
    return fixed + length + 4 * count;
}

/* Whether the lane may record one more event: only where the test limits the bytes in all. */
static bool may_record(struct lane *lane)
{
    const uint64_t most = 4096 + 128, chunk = 8 * most;
    if (lane->credit < most) {
        if (atomic_fetch_sub(&words[BUDGET], chunk) < chunk) {
            atomic_fetch_add(&words[BUDGET], chunk);
            stop();
            return false;
        }
        lane->credit += chunk;
    }
    return true;
}

static void emit(uint32_t number)
{
    struct lane *lane = &lanes[number];
    if (!may_record(lane))
        return;
    const uint64_t seq = atomic_load_explicit(&lane->started, memory_order_relaxed);
    const uint64_t h = hash(lane->seed, seq);
    const bool tiny = (h & 3) != 0;
    atomic_store_explicit(&lane->started, seq + 1, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    uint64_t bytes = 8;
    if (tiny)
        emit_tiny((h >> 8) % TINY_COUNT, number, (uint32_t)seq);
    else
        bytes = emit_full(lane, number, seq, h);
    lane->credit -= bytes + 64; /* header and contexts */
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&lane->returned, seq + 1, memory_order_release);
}

/* Takes lanes for the calling thread: its own and its handlers'. 0: there are none left. */
static uint32_t take_lanes(uint16_t thread, uint32_t count, uint64_t *chance)
{
    const uint64_t first = atomic_fetch_add(&words[LANES_USED], count);
    if (first + count > LANES_MAX) {
        stop();
        return 0;
    }
    char name[16];
    snprintf(name, sizeof(name), "p%ut%u", process_number & 0xffffU, thread & 0xffffU);
    if (thread != VFORKED)
        prctl(PR_SET_NAME, name);
    for (uint32_t i = 0; i < count; i++) {
        struct lane *lane = &lanes[first + i];
        lane->pid = (uint32_t)getpid();
        lane->tid = (uint32_t)syscall(SYS_gettid);
        lane->process = process_number;
        lane->thread = thread;
        lane->in_signal = i;
        lane->seed = next(chance);
        memcpy(lane->name, name, sizeof(name));
    }
    return (uint32_t)first;
}

/* --- Signals ---------------------------------------------------------------------------------- */

/* The two handlers may interrupt each other, so they have a lane each. */
static void on_signal(int signal_number)
{
    const int saved = errno;
    if (own_lane)
        emit(own_lane + (signal_number == SIGALRM ? 1 : 2));
    errno = saved;
}

static void start_storm(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    stormy = true;
    if (get(ALARM_US)) {
        const struct timeval interval = {.tv_usec = (suseconds_t)get(ALARM_US)};
        const struct itimerval timer = {interval, interval};
        setitimer(ITIMER_REAL, &timer, NULL);
    }
}

static void block_signals(int how)
{
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGALRM);
    sigaddset(&both, SIGUSR1);
    pthread_sigmask(how, &both, NULL);
}

/* --- Threads ---------------------------------------------------------------------------------- */

struct thread {
    pthread_t handle;
    _Atomic int tid; /* 0: ended, or none */
    _Atomic bool running;
    bool joinable;
    uint16_t number;
    uint64_t seed;
};

static struct thread threads[THREADS_MAX];

static void disturb(uint64_t *chance, bool is_thread)
{
    if (get(HOPS) && below(chance, 64) == 0) {
        const long cpus = sysconf(_SC_NPROCESSORS_CONF);
        cpu_set_t set;
        CPU_ZERO(&set);
        if (below(chance, 4) == 0)
            memset(&set, 0xff, sizeof(set));
        else
            CPU_SET(below(chance, (uint64_t)cpus), &set);
        sched_setaffinity(0, sizeof(set), &set);
    }
    if (get(NICES) && below(chance, 256) == 0)
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), (int)below(chance, 20));
    if (is_thread && get(PACE) && below(chance, get(PACE)) == 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)below(chance, 300000)}, NULL);
}

static void *thread_main(void *argument)
{
    struct thread *self = argument;
    uint64_t chance = self->seed;
    const uint32_t lane = take_lanes(self->number, LANES_PER_THREAD, &chance);
    uint64_t left = get(RESTARTS) ? 1 + below(&chance, 20000) : UINT64_MAX;
    if (lane) {
        own_lane = lane;
        atomic_store(&self->tid, (int)syscall(SYS_gettid));
        block_signals(SIG_UNBLOCK);
        while (!get(STOP) && left--) {
            emit(lane);
            disturb(&chance, true);
        }
        block_signals(SIG_BLOCK);
    }
    atomic_store(&self->tid, 0);
    atomic_store(&self->running, false);
    return NULL;
}

/* Signals to single threads, from one that takes none. */
static void *directed_storm(void *seed)
{
    uint64_t chance = *(uint64_t *)seed;
    while (!get(STOP)) {
        const int tid = atomic_load(&threads[below(&chance, THREADS_MAX)].tid);
        if (tid)
            syscall(SYS_tgkill, getpid(), tid, SIGUSR1);
        if (!tid || below(&chance, 4) == 0)
            nanosleep(&(struct timespec){.tv_nsec = (long)get(DIRECTED_US) * 1000}, NULL);
    }
    return NULL;
}

static void run_threads(uint16_t *next_number, uint64_t *chance, bool may_start)
{
    for (uint64_t i = 0; i < get(THREADS) && i < THREADS_MAX; i++) {
        struct thread *thread = &threads[i];
        if (atomic_load(&thread->running))
            continue;
        if (thread->joinable) {
            pthread_join(thread->handle, NULL);
            thread->joinable = false;
        }
        if (may_start) {
            thread->number = (*next_number)++;
            thread->seed = next(chance);
            atomic_store(&thread->running, true);
            /* It begins with both signals blocked, as its creator has them now. */
            thread->joinable = !pthread_create(&thread->handle, NULL, thread_main, thread);
            atomic_store(&thread->running, thread->joinable);
        }
    }
}

/* --- Processes -------------------------------------------------------------------------------- */

static pid_t children[CHILDREN_MAX];

static void short_life(uint64_t events)
{
    own_lane = 0;
    uint64_t chance = process_seed;
    const uint32_t lane = take_lanes(0, LANES_PER_THREAD, &chance);
    own_lane = lane;
    block_signals(SIG_UNBLOCK);
    while (lane && events-- && !get(STOP)) {
        emit(lane);
        disturb(&chance, true);
    }
}

static void exec_self(const char *role, bool claiming)
{
    char number[16], seed[24];
    snprintf(number, sizeof(number), "%u", process_number & 0xffffU);
    snprintf(seed, sizeof(seed), "%llu", (unsigned long long)process_seed);
    char *arguments[] = {(char *)"trackway-test-workload", (char *)file_name, (char *)role, number,
                         seed, NULL};
    execve("/proc/self/exe", arguments, claiming ? claiming_environment : environ);
    _exit(2);
}

/* The child's life is `role`; it ends here. */
static void spawn(const char *role, uint64_t *chance, void (*life)(void))
{
    pid_t *place = NULL;
    for (int i = 0; i < CHILDREN_MAX; i++)
        if (!children[i])
            place = &children[i];
    if (!place)
        return;
    const bool claiming = get(CLAIMS) && below(chance, 2);
    const bool exec = (get(EXECS) && below(chance, 2)) || claiming;
    const uint16_t number = (uint16_t)atomic_fetch_add(&words[STARTED], 1);
    const uint64_t seed = next(chance);
    const pid_t pid = fork();
    if (pid == 0) {
        own_lane = 0;
        process_number = number;
        process_seed = seed;
        memset(children, 0, sizeof(children));
        memset(threads, 0, sizeof(threads));
        if (exec)
            exec_self(role, claiming);
        life();
        _exit(0);
    }
    if (pid < 0)
        return;
    *place = pid;
    /* Its handlers are ours, if we have some; its first events shall be interrupted. */
    for (int i = 0; stormy && !exec && i < 5; i++) {
        nanosleep(&(struct timespec){.tv_nsec = (long)below(chance, 50000)}, NULL);
        kill(pid, SIGUSR1);
    }
}

/* A child that shares our memory while we wait. */
static __attribute__((noinline)) void spawn_sharing(uint64_t events, uint64_t *chance)
{
    const uint32_t lane = take_lanes(VFORKED, 1, chance);
    if (!lane)
        return;
    const pid_t pid = vfork();
    if (pid == 0) {
        prctl(PR_SET_NAME, lanes[lane].name);
        lanes[lane].pid = (uint32_t)getpid();
        lanes[lane].tid = (uint32_t)getpid();
        for (uint64_t i = 0; i < events; i++)
            emit(lane);
        _exit(0);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

/* `will_live`: we are not killed before we let go on whom we stopped. */
static void look_after_children(uint64_t *chance, bool will_live)
{
    for (int i = 0; i < CHILDREN_MAX; i++) {
        if (!children[i])
            continue;
        /* Not reaped yet, so the id is still this child's. */
        if (get(KILLS) && below(chance, 60) == 0) {
            kill(children[i], SIGKILL);
            atomic_fetch_add(&words[KILLED], 1);
            waitpid(children[i], NULL, 0);
            children[i] = 0;
        } else if (will_live && get(STOPS) && below(chance, 60) == 0) {
            kill(children[i], SIGSTOP);
            nanosleep(&(struct timespec){.tv_nsec = (long)below(chance, 20000000)}, NULL);
            kill(children[i], SIGCONT);
        } else if (waitpid(children[i], NULL, WNOHANG) != 0) {
            children[i] = 0;
        }
    }
}

static void stop_in_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    const bool alone = kill((pid_t)get(DRIVER), 0) && errno == ESRCH;
    if (now_ns > get(END_NS) || alone)
        stop();
}

static void live_shortly(void)
{
    short_life(200);
}

/* A process that is tortured: its leader and its threads. */
static void live(void)
{
    block_signals(SIG_BLOCK);
    uint64_t chance = process_seed;
    const uint32_t lane = take_lanes(0, LANES_PER_THREAD, &chance);
    uint16_t next_number = 1;
    pthread_t storm;
    uint64_t storm_seed = next(&chance);
    const bool directed =
        get(DIRECTED_US) && !pthread_create(&storm, NULL, directed_storm, &storm_seed);
    start_storm();
    own_lane = lane;
    if (get(VFORKS))
        spawn_sharing(5, &chance); /* so that a process's first events are its vfork child's */
    while (lane && !get(STOP)) {
        block_signals(SIG_BLOCK);
        run_threads(&next_number, &chance, true);
        look_after_children(&chance, false);
        stop_in_time();
        if (get(FORKS) && below(&chance, 8) == 0)
            spawn("short", &chance, live_shortly);
        if (get(VFORKS) && below(&chance, 8) == 0)
            spawn_sharing(below(&chance, 20), &chance);
        block_signals(SIG_UNBLOCK);
        for (uint64_t left = below(&chance, 300); left && !get(STOP); left--)
            emit(lane);
        disturb(&chance, false);
        nanosleep(&(struct timespec){.tv_nsec = (long)below(&chance, 3000000)}, NULL);
    }
    block_signals(SIG_BLOCK);
    run_threads(&next_number, &chance, false);
    for (uint64_t i = 0; i < THREADS_MAX; i++)
        if (threads[i].joinable)
            pthread_join(threads[i].handle, NULL);
    if (directed)
        pthread_join(storm, NULL);
    while (waitpid(-1, NULL, 0) > 0)
        ;
}

/* The first process: keeps the others going, and outlives them all. */
static void supervise(void)
{
    uint64_t chance = process_seed;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    atomic_store(&words[END_NS], (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec +
                                     get(DURATION_MS) * 1000000);
    const uint32_t lane = take_lanes(0, 1, &chance);
    while (!get(STOP)) {
        uint64_t alive = 0;
        emit(lane);
        look_after_children(&chance, true);
        for (int i = 0; i < CHILDREN_MAX; i++)
            alive += children[i] != 0;
        if (alive < get(PROCESSES))
            spawn("process", &chance, live);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        stop_in_time();
    }
    /* Also the children of those that were killed. */
    while (waitpid(-1, NULL, 0) > 0)
        ;
    emit(lane);
}

/* One child after the other is killed while it records; then we do, which must succeed. */
static void let_children_die(void)
{
    uint64_t chance = process_seed;
    for (uint64_t left = get(KILLS); left && !get(STOP); left--) {
        const uint64_t seed = next(&chance);
        const pid_t pid = fork();
        if (pid == 0) {
            process_seed = seed;
            process_number = (uint16_t)atomic_fetch_add(&words[STARTED], 1);
            short_life(UINT64_MAX);
            _exit(0);
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)below(&chance, 1000000)}, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        atomic_fetch_add(&words[KILLED], 1);
    }
    /* Until the recorder has scanned the remains of the previous workload, records may be lost. */
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    own_lane = 0;
    const uint32_t lane = take_lanes(0, 1, &chance);
    for (int i = 0; lane && i < 1000; i++)
        emit(lane);
}

static void prepare_environment(void)
{
    size_t count = 0;
    while (environ[count])
        count++;
    claiming_environment = calloc(count + 2, sizeof(char *));
    memcpy(claiming_environment, environ, count * sizeof(char *));
    claiming_environment[count] = (char *)"GLIBC_TUNABLES=glibc.pthread.rseq=0";
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5)
        return 2;
    map_file(argv[1]);
    process_seed = argc == 5 ? strtoull(argv[4], NULL, 10) : get(SEED);
    prepare_environment();
    process_number = (uint16_t)atoi(argv[3]);
    if (!strcmp(argv[2], "main"))
        supervise();
    else if (!strcmp(argv[2], "process"))
        live();
    else if (!strcmp(argv[2], "dying"))
        let_children_die();
    else
        live_shortly();
    return 0;
}
