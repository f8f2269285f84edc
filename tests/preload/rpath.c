/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * RPATH OBJECT: opens the object in a library that finds it only by the DT_RPATH of the library
 * that needs it. With -DOPENER that library, which has none; with -DHOLDER the one that needs it
 * and has a DT_RPATH; with -DANSWER an object to open.
 */
#include <dlfcn.h>
#include <stdio.h>

int open_it(const char *name);
int hold(const char *name);
int answer(void);

#if defined(OPENER)
int open_it(const char *name)
{
    void *const object = dlopen(name, RTLD_NOW);
    if (!object)
        fprintf(stderr, "%s\n", dlerror());
    return object != NULL;
}
#elif defined(HOLDER)
int hold(const char *name)
{
    return open_it(name);
}
#elif defined(ANSWER)
int answer(void)
{
    return 42;
}
#else
int main(int argc, char **argv)
{
    return argc == 2 && hold(argv[1]) ? 0 : 1;
}
#endif
