/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * EARLY: with -DLIBRARY a library whose resolver of an indirect function calls wrapped functions;
 * its constructor and destructor do so, too. With -DUSER a library that refers to that function,
 * and therefore follows it: when the loader relocates it, the resolver runs, before preloaded
 * libraries are relocated. With neither, the program, with a resolver of its own.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef LIBRARY
#define answer library_answer
#endif

#ifdef USER

int library_answer(void);
int (*volatile user_reference)(void) = library_answer;

int user_answer(void)
{
    return user_reference();
}

#else

static char *early, *aligned;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int forty_two(void)
{
    return 42;
}

static int (*resolve(void))(void)
{
    int fd;
    early = malloc(100);
    early = realloc(early, 200);
    memset(early, 'x', 200);
    aligned = memalign(256, 64);
    free(calloc(3, 5));
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    fd = open("/dev/null", O_RDONLY);
    if (fd < 0 || close(fd) != 0)
        return NULL;
    return forty_two;
}

int answer(void) __attribute__((ifunc("resolve")));

__attribute__((constructor)) static void begin(void)
{
    early = realloc(early, 400);
    if (early[199] != 'x' || (unsigned long)aligned % 256 != 0)
        _exit(3);
    pthread_mutex_lock(&mutex);
}

__attribute__((destructor)) static void end(void)
{
    if (pthread_mutex_unlock(&mutex) != 0)
        _exit(4);
    free(early);
    free(aligned);
}

#ifndef LIBRARY
int user_answer(void);

int main(void)
{
    return answer() == 42 && user_answer() == 42 ? 0 : 1;
}
#endif

#endif
