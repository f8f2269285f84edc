/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program of two files, which loads the plugins given as its arguments. */
#include "fake_agent.h"
#include "shared_events.h"
#ifndef STATIC
#include <dlfcn.h>
#endif
#include <stdio.h>

TRACKWAY_EVENT(program, only, TRACKWAY_NOTICE);

extern void second_file(void);

int main(int argc, char **argv)
{
    int i;
    fake_agent_enable(1);
    trackway(program, only);
    trackway(shared, visit, 0, "first");
    second_file();
    for (i = 1; i < argc; i++) {
#ifndef STATIC
        void (*visit)(int number);
        void *plugin = dlopen(argv[i], RTLD_NOW), *symbol = plugin ? dlsym(plugin, "visit") : NULL;
        if (!symbol)
            return 2;
        __builtin_memcpy(&visit, &symbol, sizeof(visit));
        visit(i);
#else
        (void)argv;
#endif
    }
    printf("registrations %d\n", fake_agent_registrations);
    fake_agent_list_notes();
    return 0;
}
