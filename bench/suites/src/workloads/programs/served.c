/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A server under load, in a network of its own, of which only the loopback is up: nobody else
 * reaches it, and any port is free.
 *
 *     served PIDS PORT COUNT SERVER… CLIENT…
 *
 * SERVER are COUNT words: its executable, and its arguments from argv[0] on. When it listens at
 * PORT, CLIENT is run: its output, then the lines of kernel.c's load.
 *     served try                    whether there can be such a network
 *
 * The server is the child of a keeper that waits for our end of a pipe: whatever we die of, the
 * keeper ends it by its id and takes it. Neither outlives LIFE_S.
 */
#include "harness.h"
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { LIFE_S = 50, PATIENCE_MS = 5000, STEP_MS = 5, WORDS_MAX = 64 };

static int own_network(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    /* Who is not root gets one with a user namespace around it. */
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return -1;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) != 0)
        return -1;
    request.ifr_flags |= IFF_UP;
    const int result = ioctl(fd, SIOCSIFFLAGS, &request);
    close(fd);
    return result;
}

static void pause_ms(long ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Waits until the child has ended, for so long. */
static int ends_within(pid_t child, int ms)
{
    for (int waited = 0; waited <= ms; waited += STEP_MS) {
        if (waitpid(child, NULL, WNOHANG) == child)
            return 1;
        pause_ms(STEP_MS);
    }
    return 0;
}

/* Keeps a server until `alive` is closed at its other end, or the server has ended. */
static int keep(int alive, char **words)
{
    /* What ends those in front of us is not for us: we end when they have. */
    setpgid(0, 0);
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    const pid_t keeper = getpid(), server = fork();
    if (server < 0)
        return 1;
    if (server == 0) {
        setpgid(0, 0);
        signal(SIGTERM, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        signal(SIGHUP, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int nowhere = open("/dev/null", O_RDWR);
        if (getppid() != keeper || nowhere < 0)
            _exit(127);
        dup2(nowhere, 0);
        dup2(nowhere, 1);
        execv(words[0], words + 1);
        _exit(127);
    }
    /* Our output's readers wait for its end: that is not ours. */
    close(0);
    close(1);
    close(2);
    struct pollfd end = {.fd = alive, .events = POLLIN};
    for (int s = 0; s < LIFE_S * 10; s++)
        if (poll(&end, 1, 100) > 0 || waitpid(server, NULL, WNOHANG) == server)
            break;
    /* Its children, which some have for each connection, are in its group. */
    if (kill(server, 0) == 0) {
        kill(-server, SIGTERM);
        if (!ends_within(server, PATIENCE_MS)) {
            kill(-server, SIGKILL);
            waitpid(server, NULL, 0);
        }
    }
    return 0;
}

/* Waits until somebody listens at the port. */
static int is_served(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int waited = 0; waited <= PATIENCE_MS; waited += STEP_MS) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int is_there = fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
        close(fd);
        if (is_there)
            return 1;
        pause_ms(STEP_MS);
    }
    return 0;
}

int main(int argc, char **argv)
{
    char *server[WORDS_MAX + 1] = {NULL};
    const int words = argc > 3 ? atoi(argv[3]) : 0;
    int both[2];
    if (argc == 2 && strcmp(argv[1], "try") == 0)
        return own_network() != 0;
    if (words < 2 || words > WORDS_MAX || argc < words + 5)
        return 2;
    /* Nothing of this outlives who runs it, or hangs. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(LIFE_S);
    memcpy(server, argv + 4, (size_t)words * sizeof *server);
    if (own_network() != 0 || pipe2(both, O_CLOEXEC) != 0)
        return 3;
    const pid_t keeper = fork();
    if (keeper == 0) {
        close(both[1]);
        _exit(keep(both[0], server));
    }
    close(both[0]);
    if (keeper < 0)
        return 3;
    const int result =
        is_served((uint16_t)atoi(argv[2])) ? lab_load(NULL, argv[1], argv + 4 + words) : 4;
    close(both[1]);
    waitpid(keeper, NULL, 0);
    return result;
}
