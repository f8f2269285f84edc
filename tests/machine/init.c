/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The first process of a machine that a test starts (tests/src/machine.rs): runs the commands in
 * /plan, one a line, words between spaces, and switches the machine off. Prints their results on
 * the console:
 *
 *   >> COMMAND
 *   (its output)
 *   << STATUS
 *
 * "take FOLDER" prints the files of the folder: ">> file PATH", lines of base64, "<< file".
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void take_file(const char *path)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char bytes[57]; /* a line of 76 digits */
    size_t count;
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    printf(">> file %s\n", path);
    while ((count = fread(bytes, 1, sizeof(bytes), file)) > 0) {
        for (size_t i = 0; i < count; i += 3) {
            const size_t left = count - i;
            const unsigned long bits = (unsigned long)bytes[i] << 16 |
                                       (left > 1 ? (unsigned long)bytes[i + 1] << 8 : 0) |
                                       (left > 2 ? (unsigned long)bytes[i + 2] : 0);
            putchar(digits[bits >> 18]);
            putchar(digits[bits >> 12 & 63]);
            putchar(left > 1 ? digits[bits >> 6 & 63] : '=');
            putchar(left > 2 ? digits[bits & 63] : '=');
        }
        putchar('\n');
    }
    printf("<< file\n");
    fclose(file);
}

static void take(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    if (!folder) {
        take_file(path);
        return;
    }
    while ((entry = readdir(folder))) {
        char below[512];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
        take(below);
    }
    closedir(folder);
}

static int run(char **words)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        execv(words[0], words);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(void)
{
    char line[512];
    FILE *plan;
    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    mkdir("/dev", 0755);
    mkdir("/tmp", 01777);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    mkdir("/dev/shm", 01777);
    mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777");
    mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777");
    freopen("/dev/console", "w", stdout);
    dup2(fileno(stdout), 1);
    dup2(fileno(stdout), 2);
    setenv("PATH", "/bin", 1);
    setenv("HOME", "/tmp", 1);
    plan = fopen("/plan", "r");
    while (plan && fgets(line, sizeof(line), plan)) {
        char *words[64], *rest = line;
        int count = 0;
        line[strcspn(line, "\n")] = 0;
        printf(">> %s\n", line);
        fflush(stdout);
        for (char *word; count < 63 && (word = strtok_r(rest, " ", &rest));)
            words[count++] = word;
        words[count] = NULL;
        if (count == 2 && !strcmp(words[0], "take"))
            take(words[1]);
        else if (count > 0)
            printf("<< %d\n", run(words));
        fflush(stdout);
    }
    printf(">> off\n");
    fflush(stdout);
    sync();
    reboot(RB_POWER_OFF);
    return 1;
}
