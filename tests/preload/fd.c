/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* FD: records of the fd helper, see expect.h. Runs in a writable folder. */
#define _GNU_SOURCE
#include "expect.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags);

static void opened_at(int fd, int error, int dirfd, int flags, const char *path)
{
    expect("trackway_fd:open fd = %d, error = %d, dirfd = %d, flags = 0x%X, path = \"%s\"", fd,
           error, dirfd, (unsigned)flags, path);
}

static void opened(int fd, int flags, const char *path)
{
    CHECK(fd >= 0);
    opened_at(fd, 0, AT_FDCWD, flags, path);
}

static void closed(int fd)
{
    CHECK(close(fd) == 0);
    expect("trackway_fd:close fd = %d", fd);
}

/* The program gets EFAULT, and the trace no path. */
static void bad_pointers(void)
{
    const char *volatile null = NULL, *volatile bad = (const char *)8;
    CHECK(open(bad, O_RDONLY) == -1 && errno == EFAULT);
    opened_at(-1, EFAULT, AT_FDCWD, O_RDONLY, "");
    CHECK(openat(AT_FDCWD, null, O_RDONLY) == -1 && errno == EFAULT);
    opened_at(-1, EFAULT, AT_FDCWD, O_RDONLY, "");
    CHECK(creat(bad, 0640) == -1 && errno == EFAULT);
    opened_at(-1, EFAULT, AT_FDCWD, O_CREAT | O_WRONLY | O_TRUNC, "");
    CHECK(!fopen(bad, "r") && errno == EFAULT);
    opened_at(-1, EFAULT, AT_FDCWD, O_RDONLY, "");
    CHECK(closedir((DIR *)(uintptr_t)null) == -1 && errno == EINVAL);
    /* Steps before the path is read may be refused, too. */
    CHECK(open(bad, O_TMPFILE | O_RDONLY, 0600) == -1 && errno == EINVAL);
    opened_at(-1, EINVAL, AT_FDCWD, O_TMPFILE | O_RDONLY, "");
    CHECK(!fopen(bad, "z") && errno == EINVAL);
    opened_at(-1, EINVAL, AT_FDCWD, O_WRONLY | O_CREAT | O_TRUNC, "");
    CHECK(open("file", O_TMPFILE | O_RDONLY, 0600) == -1 && errno == EINVAL);
    opened_at(-1, EINVAL, AT_FDCWD, O_TMPFILE | O_RDONLY, "file");
}

/* A path that ends where its memory does. */
static void last_path(void)
{
    enum { PAGE = 4096 };
    char *const memory = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                              -1, 0);
    char *const end = memory + 2 * PAGE, *const path = end - sizeof("/missing");
    CHECK(memory != MAP_FAILED && munmap(end, PAGE) == 0);
    CHECK(open(strcpy(path, "/missing"), O_RDONLY) == -1 && errno == ENOENT);
    opened_at(-1, ENOENT, AT_FDCWD, O_RDONLY, "/missing");
    memset(path, 'x', sizeof("/missing"));
    CHECK(open(path, O_RDONLY) == -1 && errno == EFAULT);
    opened_at(-1, EFAULT, AT_FDCWD, O_RDONLY, "");
    CHECK(munmap(memory, 2 * PAGE) == 0);
}

/* A sandbox: no file may be opened, and other calls for files or for memory kill the process. */
static void restrict_self(void)
{
#define IF(number, answer)                                                                        \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, answer)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        IF(SYS_openat, SECCOMP_RET_ERRNO | EPERM),
        IF(SYS_access, SECCOMP_RET_KILL_PROCESS),
        IF(SYS_faccessat, SECCOMP_RET_KILL_PROCESS),
        IF(SYS_process_vm_readv, SECCOMP_RET_KILL_PROCESS),
        IF(SYS_pipe2, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void sandbox(void)
{
    const char *volatile bad = (const char *)8;
    int status;
    const pid_t child = fork();
    if (child == 0) {
        restrict_self();
        CHECK(open(bad, O_RDONLY) == -1 && errno == EPERM);
        opened_at(-1, EPERM, AT_FDCWD, O_RDONLY, "");
        CHECK(open("file", O_RDONLY) == -1 && errno == EPERM);
        opened_at(-1, EPERM, AT_FDCWD, O_RDONLY, "file");
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void opens(void)
{
    const int create = O_CREAT | O_WRONLY | O_TRUNC;
    char path[] = "made-XXXXXX", path2[] = "made-XXXXXX", path3[] = "made-XXXXXX",
         path4[] = "made-XXXXXX", shared[64];
    int fd;
#define OPENS(flags, path, call)                                                                  \
    do {                                                                                          \
        errno = 77;                                                                               \
        fd = (call);                                                                              \
        CHECK(errno == 77);                                                                       \
        opened(fd, flags, path);                                                                  \
        closed(fd);                                                                               \
    } while (0)
    OPENS(create, "file", open("file", create, 0640));
    OPENS(O_RDONLY, "file", open("file", O_RDONLY));
    OPENS(create, "file", open64("file", create, 0640));
    OPENS(O_RDONLY, "file", openat(AT_FDCWD, "file", O_RDONLY));
    OPENS(O_RDWR, "file", openat64(AT_FDCWD, "file", O_RDWR));
    OPENS(O_RDONLY, "file", __open_2("file", O_RDONLY));
    OPENS(O_RDONLY, "file", __open64_2("file", O_RDONLY));
    OPENS(O_RDONLY, "file", __openat_2(AT_FDCWD, "file", O_RDONLY));
    OPENS(O_RDONLY, "file", __openat64_2(AT_FDCWD, "file", O_RDONLY));
    OPENS(create, "file", creat("file", 0640));
    OPENS(create, "file", creat64("file", 0640));
    OPENS(O_RDWR | O_CREAT | O_EXCL, path, mkstemp(path));
    OPENS(O_RDWR | O_CREAT | O_EXCL, path2, mkstemp64(path2));
    OPENS(O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, path3, mkostemp(path3, O_CLOEXEC));
    OPENS(O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, path4, mkostemp64(path4, O_CLOEXEC));
    for (int i = 0; i < 4; i++) {
        char with_suffix[] = "made-XXXXXX.c";
        const int flags = O_RDWR | O_CREAT | O_EXCL | (i < 2 ? 0 : O_CLOEXEC);
        OPENS(flags, with_suffix,
              i == 0   ? mkstemps(with_suffix, 2)
              : i == 1 ? mkstemps64(with_suffix, 2)
              : i == 2 ? mkostemps(with_suffix, 2, O_CLOEXEC)
                       : mkostemps64(with_suffix, 2, O_CLOEXEC));
        CHECK(strcmp(with_suffix + 11, ".c") == 0);
    }
    snprintf(shared, sizeof(shared), "/trackway-test-%d", getpid());
    OPENS(O_RDWR | O_CREAT | O_EXCL, shared, shm_open(shared, O_RDWR | O_CREAT | O_EXCL, 0600));
    CHECK(shm_unlink(shared) == 0);
    OPENS(O_RDWR | O_NOCTTY, "/dev/ptmx", posix_openpt(O_RDWR | O_NOCTTY));
    CHECK(open("missing", O_RDONLY) == -1 && errno == ENOENT);
    opened_at(-1, ENOENT, AT_FDCWD, O_RDONLY, "missing");
}

static void streams(void)
{
    static const struct {
        const char *mode;
        int flags;
    } modes[] = {
        {"w", O_WRONLY | O_CREAT | O_TRUNC},
        {"r", O_RDONLY},
        {"r+", O_RDWR},
        {"a", O_WRONLY | O_CREAT | O_APPEND},
        {"w+e", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC},
    };
    FILE *stream;
    DIR *folder;
    int fd;
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        stream = i % 2 ? fopen64("stream", modes[i].mode) : fopen("stream", modes[i].mode);
        CHECK(stream);
        fd = fileno(stream);
        opened(fd, modes[i].flags, "stream");
        CHECK(fclose(stream) == 0);
        expect("trackway_fd:close fd = %d", fd);
    }
    CHECK(!fopen("missing", "r") && errno == ENOENT);
    opened_at(-1, ENOENT, AT_FDCWD, O_RDONLY, "missing");
    stream = fopen("stream", "r");
    opened(fileno(stream), O_RDONLY, "stream");
    for (int i = 0; i < 2; i++) {
        expect("trackway_fd:close fd = %d", fileno(stream));
        stream = i ? freopen64("file", "r", stream) : freopen("file", "r", stream);
        opened(fileno(stream), O_RDONLY, "file");
    }
    expect("trackway_fd:close fd = %d", fileno(stream));
    CHECK(fclose(stream) == 0);
    for (int i = 0; i < 2; i++) {
        stream = i ? tmpfile64() : tmpfile();
        CHECK(stream);
        opened(fileno(stream), O_RDWR | O_CREAT | O_EXCL, "");
        expect("trackway_fd:close fd = %d", fileno(stream));
        CHECK(fclose(stream) == 0);
    }
    folder = opendir(".");
    CHECK(folder);
    opened(dirfd(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC, ".");
    fd = openat(dirfd(folder), "file", O_RDONLY);
    opened_at(fd, 0, dirfd(folder), O_RDONLY, "file");
    closed(fd);
    expect("trackway_fd:close fd = %d", dirfd(folder));
    CHECK(closedir(folder) == 0);
}

static void duplicated(int fd, int old_fd, int flags)
{
    CHECK(fd >= 0);
    expect("trackway_fd:dup fd = %d, error = 0, old_fd = %d, flags = 0x%X", fd, old_fd,
           (unsigned)flags);
}

static void duplicates(void)
{
    duplicated(dup(1), 1, 0);
    duplicated(dup2(1, 30), 1, 0);
    duplicated(dup3(1, 31, O_CLOEXEC), 1, O_CLOEXEC);
    duplicated(fcntl(1, F_DUPFD, 40), 1, 0);
    duplicated(fcntl64(1, F_DUPFD_CLOEXEC, 41), 1, O_CLOEXEC);
    CHECK(fcntl(41, F_GETFD) == FD_CLOEXEC); /* other commands pass through */
    CHECK(fcntl(40, F_SETFD, FD_CLOEXEC) == 0 && fcntl64(40, F_GETFD) == FD_CLOEXEC);
    CHECK(dup(99) == -1 && errno == EBADF);
    expect("trackway_fd:dup fd = -1, error = %d, old_fd = 99, flags = 0x0", EBADF);
    CHECK(close_range(30, 31, 0) == 0);
    expect("trackway_fd:close_range first = 30, last = 31, flags = 0x0");
    closefrom(40);
    expect("trackway_fd:close_range first = 40, last = 4294967295, flags = 0x0");
}

static void sockets(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int fds[2], listening, client, fd;
    CHECK(pipe(fds) == 0);
    expect("trackway_fd:pipe read_fd = %d, write_fd = %d, error = 0, flags = 0x0", fds[0], fds[1]);
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    expect("trackway_fd:pipe read_fd = %d, write_fd = %d, error = 0, flags = 0x%X", fds[0], fds[1],
           (unsigned)O_CLOEXEC);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    expect("trackway_fd:socketpair fd = %d, other_fd = %d, error = 0, family = %d, type = %d, "
           "protocol = 0", fds[0], fds[1], AF_UNIX, SOCK_STREAM);
    listening = socket(AF_UNIX, SOCK_STREAM, 0);
    client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    expect("trackway_fd:socket fd = %d, error = 0, family = %d, type = %d, protocol = 0",
           listening, AF_UNIX, SOCK_STREAM);
    expect("trackway_fd:socket fd = %d, error = 0, family = %d, type = %d, protocol = 0", client,
           AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK);
    CHECK(bind(listening, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(listening, 2) == 0);
    CHECK(connect(client, (struct sockaddr *)&address, sizeof(address)) == 0);
    fd = accept(listening, NULL, NULL);
    CHECK(fd >= 0);
    expect("trackway_fd:accept fd = %d, error = 0, listening_fd = %d, flags = 0x0", fd, listening);
    client = socket(AF_UNIX, SOCK_STREAM, 0);
    expect("trackway_fd:socket fd = %d, error = 0, family = %d, type = %d, protocol = 0", client,
           AF_UNIX, SOCK_STREAM);
    CHECK(connect(client, (struct sockaddr *)&address, sizeof(address)) == 0);
    fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd >= 0);
    expect("trackway_fd:accept fd = %d, error = 0, listening_fd = %d, flags = 0x%X", fd, listening,
           (unsigned)SOCK_CLOEXEC);
}

static void created(int fd, const char *kind, int number, int flags)
{
    CHECK(fd >= 0);
    expect("trackway_fd:create fd = %d, error = 0, kind = ( \"%s\" : container = %d ), "
           "flags = 0x%X", fd, kind, number, (unsigned)flags);
}

static void others(void)
{
    sigset_t set;
    int fd;
    sigemptyset(&set);
    created(eventfd(3, EFD_CLOEXEC), "eventfd", 0, EFD_CLOEXEC);
    created(epoll_create(1), "epoll", 1, 0);
    created(epoll_create1(EPOLL_CLOEXEC), "epoll", 1, EPOLL_CLOEXEC);
    created(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), "timerfd", 2, TFD_NONBLOCK);
    fd = signalfd(-1, &set, SFD_CLOEXEC);
    created(fd, "signalfd", 3, SFD_CLOEXEC);
    CHECK(signalfd(fd, &set, 0) == fd); /* none is made */
    created(memfd_create("memory", MFD_CLOEXEC), "memfd", 4, MFD_CLOEXEC);
    created(inotify_init(), "inotify", 5, 0);
    created(inotify_init1(IN_CLOEXEC), "inotify", 5, IN_CLOEXEC);
}

int main(void)
{
    expect_begin();
    opens();
    bad_pointers();
    last_path();
    sandbox();
    streams();
    duplicates();
    sockets();
    others();
    expect_end();
    return 0;
}
