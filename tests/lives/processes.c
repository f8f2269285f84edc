/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Lives of processes: each mode takes steps before, during and after the action in its name. */
#define _GNU_SOURCE
#include "steps.h"
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

extern char **environ;
static char *self;

static void mode_steps(long count)
{
    take_steps(new_stream(), count);
}

/* Children that trace without exec, one after the other. */
static void mode_fork(long children)
{
    const unsigned who = new_stream();
    for (long i = 0; i < children; i++) {
        take_steps(who, 10);
        const pid_t child = fork();
        if (child == 0) {
            take_steps(new_stream(), 100);
            _exit(5);
        }
        step(who);
        expect(child, 5);
    }
    take_steps(who, 10);
}

/* Children whose first step is interrupted, soon after it began or later, by a periodic timer; its
 * handler takes steps, too. All steps must return. */
static volatile sig_atomic_t calls, came_through;
static unsigned handlers_stream;
static void on_timer(int signal)
{
    (void)signal;
    step(handlers_stream);
    if (!came_through && ++calls > 5000)
        _exit(95);
}
static void mode_timer(long children)
{
    const unsigned who = new_stream();
    for (long i = 0; i < children; i++) {
        const pid_t child = fork();
        if (child == 0) {
            const struct itimerval timer = {{0, 100}, {0, 1 + i % 50}}, none = {{0, 0}, {0, 0}};
            const unsigned first = new_stream();
            handlers_stream = new_stream();
            signal(SIGALRM, on_timer);
            setitimer(ITIMER_REAL, &timer, NULL);
            step(first);
            came_through = 1;
            setitimer(ITIMER_REAL, &none, NULL);
            _exit(5);
        }
        step(who);
        expect(child, 5);
    }
}

/* Every process has `three` children until the tree is `depth` high. */
static void mode_tree(long depth)
{
    const unsigned who = new_stream();
    pid_t children[3];
    take_steps(who, 10);
    if (depth == 0)
        return;
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            mode_tree(depth - 1);
            _exit(0);
        }
        step(who);
    }
    for (int i = 0; i < 3; i++)
        expect(children[i], 0);
    take_steps(who, 10);
}

/* Each process has one child, `depth` deep. */
static void mode_chain(long depth)
{
    const unsigned who = new_stream();
    take_steps(who, 5);
    if (depth == 0)
        return;
    const pid_t child = fork();
    if (child == 0) {
        mode_chain(depth - 1);
        _exit(0);
    }
    step(who);
    expect(child, 0);
    take_steps(who, 5);
}

/*
 * Children by clone(2) with memory of their own, with their parent's while it waits, and with their
 * parent's while it goes on: then both share one thread-local storage, too.
 */
static int cloned(void *argument)
{
    take_steps((unsigned)(unsigned long)argument, 50);
    _exit(5);
}

static void mode_clone(long rounds)
{
    static const int flags[] = {0, CLONE_VM | CLONE_VFORK, CLONE_VM, CLONE_FILES | CLONE_FS};
    const unsigned who = new_stream();
    char *stack = mmap(NULL, 256 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    take_steps(who, 10);
    for (long i = 0; i < rounds * 4; i++) {
        const unsigned long its = new_stream();
        const pid_t child = clone(cloned, stack + (256 << 10), flags[i % 4] | SIGCHLD, (void *)its);
        if (child < 0)
            _exit(96);
        take_steps(who, 50);
        expect(child, 5);
        step(who);
    }
    take_steps(who, 10);
}

static void mode_exec(long images)
{
    char rest[24];
    take_steps(new_stream(), 100);
    if (images == 0)
        return;
    snprintf(rest, sizeof(rest), "%ld", images - 1);
    execl(self, self, "exec", rest, (char *)NULL);
    _exit(96);
}

/* Children that share their parent's memory: they trace, then exec or end. */
static void mode_vfork(long children)
{
    const unsigned who = new_stream(), whose_exec = new_stream(), whose_exit = new_stream();
    for (volatile long i = 0; i < children; i++) {
        step(who);
        const pid_t child = vfork();
        if (child == 0) {
            if (i % 4 == 0) {
                take_steps(whose_exec, 3);
                execl(self, self, "steps", "5", (char *)NULL);
                _exit(96);
            }
            take_steps(whose_exit, 3);
            _exit(0);
        }
        step(who);
        expect(child, 0);
    }
    take_steps(who, 100);
}

static void mode_spawn(long children)
{
    const unsigned who = new_stream();
    char *arguments[] = {self, "steps", "10", NULL};
    for (long i = 0; i < children; i++) {
        pid_t child;
        step(who);
        if (posix_spawn(&child, self, NULL, NULL, arguments, environ) != 0)
            _exit(96);
        step(who);
        expect(child, 0);
    }
    step(who);
}

static void mode_system(long children)
{
    const unsigned who = new_stream();
    char command[4200];
    snprintf(command, sizeof(command), "'%s' steps 10 | cat && '%s' steps 10", self, self);
    for (long i = 0; i < children; i++) {
        step(who);
        if (system(command) != 0)
            _exit(96);
    }
    step(who);
}

/* A child that leaves its session and outlives its parent. */
static void mode_daemon(long count)
{
    const unsigned who = new_stream();
    step(who);
    const pid_t between = fork();
    if (between == 0) {
        setsid();
        if (fork() != 0)
            _exit(0); /* so that the daemon can never get a terminal */
        umask(0);
        if (chdir("/") != 0)
            _exit(96);
        alarm(50);
        for (int fd = 0; fd < 3; fd++)
            close(fd);
        steps->pid = (uint32_t)getpid();
        const unsigned its = new_stream();
        for (long i = 0; i < count && !steps->stop; i++) {
            step(its);
            steps->ready = 1;
            usleep(1000);
        }
        steps->ready = 2;
        _exit(0);
    }
    expect(between, 0);
    while (!steps->ready)
        usleep(1000);
    step(who);
}

/* Closes every descriptor, as daemons do. */
static void mode_close(long count)
{
    const unsigned who = new_stream();
    take_steps(who, 10);
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
    take_steps(who, count);
    const pid_t child = fork();
    if (child == 0) {
        take_steps(new_stream(), count);
        _exit(0);
    }
    expect(child, 0);
}

/* Steps until the test sets `stop`, one burst in `pause_us`. */
static void mode_busy(long pause_us)
{
    const unsigned who = new_stream();
    steps->pid = (uint32_t)getpid();
    while (!steps->stop) {
        take_steps(who, 10);
        steps->ready = 1;
        if (pause_us > 0)
            usleep((useconds_t)pause_us);
    }
}

/* Children in full flight, each killed at a moment of its own. */
static void mode_killed(long children)
{
    const unsigned who = new_stream();
    for (long i = 0; i < children; i++) {
        const unsigned its = new_stream();
        const pid_t child = fork();
        int status;
        if (child == 0) {
            alarm(50);
            for (;;)
                step(its);
        }
        step(who);
        while (steps->streams[its].returned < (uint64_t)(50 + 13 * i))
            sched_yield();
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            _exit(96);
    }
    take_steps(who, 10);
}

/* A limit of its own, then steps: the program lowers its inherited limit. */
static void mode_few_descriptors(long count)
{
    const struct rlimit limit = {8, 8};
    setrlimit(RLIMIT_NOFILE, &limit);
    mode_fork(3);
    mode_steps(count);
}

/* Steps until SIGINT, then a few more. */
static volatile sig_atomic_t interrupted;
static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}
static void mode_interrupted(long last)
{
    const unsigned who = new_stream();
    signal(SIGINT, on_interrupt);
    steps->pid = (uint32_t)getpid();
    while (!interrupted) {
        step(who);
        steps->ready = 1;
        usleep(100);
    }
    take_steps(who, last);
    exit(3);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(long number);
    } modes[] = {
        {"steps", mode_steps},   {"fork", mode_fork},     {"tree", mode_tree},
        {"exec", mode_exec},     {"vfork", mode_vfork},   {"spawn", mode_spawn},
        {"system", mode_system}, {"daemon", mode_daemon}, {"close", mode_close},
        {"busy", mode_busy},     {"killed", mode_killed}, {"few-descriptors", mode_few_descriptors},
        {"interrupted", mode_interrupted}, {"chain", mode_chain}, {"clone", mode_clone},
        {"timer", mode_timer},
    };
    self = argv[0];
    steps_open();
    for (size_t i = 0; argc > 2 && i < sizeof(modes) / sizeof(modes[0]); i++)
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run(atol(argv[2]));
            return argc > 3 ? atoi(argv[3]) : 0;
        }
    return 2;
}
