/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Events that several files and modules use. */
#ifndef SHARED_EVENTS_H
#define SHARED_EVENTS_H

#include <trackway/trackway.h>

TRACKWAY_ENUM(shared, place, (program, 0), (plugin, 1, 2));
TRACKWAY_EVENT(shared, visit, TRACKWAY_INFO, (enum, place, shared, place, u8), (str, file));
TRACKWAY_EVENT(shared, unused, TRACKWAY_DEBUG, (u8, x));

#endif
