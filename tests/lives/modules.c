/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Loads and unloads the modules given as arguments, in one thread or in one each. */
#define _GNU_SOURCE
#include "steps.h"
#include <dlfcn.h>
#include <pthread.h>

typedef void plugin_steps_fn(struct steps *memory, unsigned who, long count);

static long rounds;
static int new_namespace;

static void *load_and_unload(void *path)
{
    const unsigned who = new_stream();
    for (long i = 0; i < rounds; i++) {
        void *module = new_namespace ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL)
                                     : dlopen(path, RTLD_NOW | RTLD_LOCAL);
        plugin_steps_fn *plugin_steps;
        void *symbol = module ? dlsym(module, "plugin_steps") : NULL;
        if (!symbol)
            _exit(96);
        memcpy(&plugin_steps, &symbol, sizeof(symbol));
        step(who);
        plugin_steps(steps, who, 5);
        if (dlclose(module) != 0)
            _exit(95);
        step(who);
    }
    return NULL;
}

/* modules threads|turns|namespaces ROUNDS MODULE... */
int main(int argc, char **argv)
{
    pthread_t threads[8];
    steps_open();
    if (argc < 4 || argc > 3 + 8)
        return 2;
    rounds = atol(argv[2]);
    new_namespace = strcmp(argv[1], "namespaces") == 0;
    for (int i = 3; i < argc; i++) {
        if (pthread_create(&threads[i - 3], NULL, load_and_unload, argv[i]) != 0)
            return 96;
        if (strcmp(argv[1], "threads") != 0)
            pthread_join(threads[i - 3], NULL);
    }
    for (int i = 3; i < argc && strcmp(argv[1], "threads") == 0; i++)
        pthread_join(threads[i - 3], NULL);
    return 0;
}
