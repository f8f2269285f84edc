/*
 * The object that the development library `libtrackway.so` (a linker script) adds to every program
 * that is linked with -ltrackway.
 *
 * The header refers to the library weakly, so that a program runs without it. Linkers that run with
 * --as-needed (the default of several distributions) drop a library that only weak references need.
 * The pointer below is a strong reference: the linker records the library as DT_NEEDED.
 */

extern void trackway_abi_register(void);

#if defined(__has_attribute)
#if __has_attribute(retain)
#define TRACKWAY_RETAIN __attribute__((used, retain))
#endif
#endif
#ifndef TRACKWAY_RETAIN
#define TRACKWAY_RETAIN __attribute__((used))
#endif

/* `retain` keeps the section under --gc-sections. */
TRACKWAY_RETAIN static void (*const trackway_link)(void) = trackway_abi_register;
