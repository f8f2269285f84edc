/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Stands in for libtrackway.so: accepts modules' events and passes their records to the test. */
#ifndef FAKE_AGENT_H
#define FAKE_AGENT_H

#include <trackway/abi/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called for each record. Until a test sets another, prints "provider:name bytes-in-hex". */
extern void (*fake_agent_sink)(const struct trackway_abi_event *event,
                               const unsigned char *payload, size_t payload_size);

/* True if the latest record has the flag of a cut field. */
extern int fake_agent_cut;

/* Switches all events on or off. They start off. */
void fake_agent_enable(int on);

/* How often a module has announced itself. */
extern int fake_agent_registrations;

/* Finds modules by their notes, as the library does when it is loaded, and prints for each
 * "name: notes N, events N" and its events' names. */
void fake_agent_list_notes(void);

#ifdef __cplusplus
}
#endif
#endif
