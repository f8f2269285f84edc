/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* MIXED: a program with threads, for chains of preloaded libraries: prints how often it called. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 500 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static int turn;

static void *work(void *argument)
{
    const int self = (int)(long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        char *volatile memory = malloc((size_t)(i % 300 + 1));
        memory[0] = 'x';
        memory = realloc(memory, 700);
        if (!memory || memory[0] != 'x')
            abort();
        pthread_mutex_lock(&mutex);
        while (turn != self)
            pthread_cond_wait(&cond, &mutex);
        turn = (turn + 1) % THREADS;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
        free(memory);
        sem_post(&sem);
        if (close(open("/dev/null", O_RDONLY)) != 0)
            abort();
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int status = 0;
    sem_init(&sem, 0, 0);
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            return 2;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 5; i++) {
        const pid_t child = fork();
        if (child == 0)
            _exit(3);
        if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 3)
            return 4;
    }
    printf("done\n");
    return 0;
}
