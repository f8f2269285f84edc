/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Gives itself recognisable contexts: other namespaces, niceness, name, users. Then calls
 * getpgid(2) from a thread of a process with numbers of its own, and prints the contexts of that
 * thread. After that, for each context, calls lseek(2) with 100 and beyond: to the context's value,
 * and to one more. contexts CGROUP, an open folder of control groups (or nothing) to enter. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long inode(const char *path)
{
    struct stat of;
    return stat(path, &of) == 0 ? (unsigned long)of.st_ino : 0;
}

static unsigned long namespace(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/thread-self/ns/%s", name);
    return inode(path);
}

static struct {
    const char *name;
    long value;
} contexts[32];
static int context_count;

static void has(const char *name, long value)
{
    contexts[context_count].name = name;
    contexts[context_count++].value = value;
}

/* /proc is that of the first namespace, and so are the numbers in it. */
static void *call(void *argument)
{
    const char *cgroup = argument;
    char link[64] = "";
    int pid = 0, tid = 0, parent = 0;
    if (readlink("/proc/thread-self", link, sizeof link - 1) < 0 ||
        sscanf(link, "%d/task/%d", &pid, &tid) != 2)
        exit(90);
    FILE *stat = fopen("/proc/self/stat", "r");
    if (!stat || fscanf(stat, "%*d (%*[^)]) %*c %d", &parent) != 1)
        exit(91);
    fclose(stat);
    if (prctl(PR_SET_NAME, "fifteen letters", 0, 0, 0) || setpriority(PRIO_PROCESS, 0, 7))
        exit(92);
    has("tid", tid);
    has("pid", pid);
    has("ppid", parent);
    has("vpid", getpid());
    has("vtid", gettid());
    has("prio", 27);
    has("nice", 7);
    has("uid", 1);
    has("euid", 2);
    has("suid", 3);
    has("gid", 11);
    has("egid", 12);
    has("sgid", 13);
    static const char *const kinds[][2] = {
        {"cgroup_ns", "cgroup"}, {"ipc_ns", "ipc"}, {"mnt_ns", "mnt"}, {"net_ns", "net"},
        {"pid_ns", "pid"}, {"time_ns", "time"}, {"user_ns", "user"}, {"uts_ns", "uts"},
    };
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        has(kinds[kind][0], namespace(kinds[kind][1]));
    has("cgroup_id", *cgroup ? inode(cgroup) : 0);
    /* As any thread is that calls the kernel. */
    has("preemptible", 1);
    has("interruptible", 1);
    has("migratable", 1);
    printf("{ ");
    for (int number = 0; number < context_count; number++)
        printf("%s = %ld, ", contexts[number].name, contexts[number].value);
    printf("procname = \"fifteen letters\" }\n");
    fflush(stdout);
    if (syscall(SYS_setresgid, 11, 12, 13) || syscall(SYS_setresuid, 1, 2, 3))
        exit(93);
    syscall(SYS_getpgid, 1000000000);
    has("procname", 0);
    for (int number = 0; number < context_count; number++) {
        syscall(SYS_lseek, -1, contexts[number].value, 100 + number);
        syscall(SYS_lseek, -1, contexts[number].value + 1, 100 + number);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char *cgroup = argc > 1 ? argv[1] : "";
    if (*cgroup) {
        char path[512];
        snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
        int file = open(path, O_WRONLY);
        if (file < 0 || write(file, "0", 1) != 1)
            return 80;
        close(file);
    }
    if (unshare(CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET))
        return 81;
    pid_t child = fork();
    if (child < 0)
        return 82;
    if (child == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, call, cgroup) || pthread_join(thread, NULL))
            return 83;
        return 0;
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 84;
}
