/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Makes itself recognisable: other namespaces, niceness, name, users. Then calls getpgid(2) from a
 * thread of a process with numbers of its own, and says what contexts that has. contexts CGROUP,
 * an open folder of control groups (or nothing) to be in. */
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

/* /proc is that of the first namespace: so are the numbers in it. */
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
    printf("{ tid = %d, pid = %d, ppid = %d, vpid = %d, vtid = %d, prio = 27, nice = 7, ", tid, pid,
           parent, (int)getpid(), (int)gettid());
    printf("uid = 1, euid = 2, suid = 3, gid = 11, egid = 12, sgid = 13, ");
    printf("cgroup_ns = %lu, ipc_ns = %lu, mnt_ns = %lu, net_ns = %lu, pid_ns = %lu, ",
           namespace("cgroup"), namespace("ipc"), namespace("mnt"), namespace("net"),
           namespace("pid"));
    printf("time_ns = %lu, user_ns = %lu, uts_ns = %lu, ", namespace("time"), namespace("user"),
           namespace("uts"));
    printf("cgroup_id = %lu, ", *cgroup ? inode(cgroup) : 0);
    /* As any thread is that calls the kernel. */
    printf("preemptible = 1, interruptible = 1, migratable = 1, ");
    printf("procname = \"fifteen letters\" }\n");
    fflush(stdout);
    if (syscall(SYS_setresgid, 11, 12, 13) || syscall(SYS_setresuid, 1, 2, 3))
        exit(93);
    syscall(SYS_getpgid, 1000000000);
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
