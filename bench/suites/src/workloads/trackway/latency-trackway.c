/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The loop with Trackway's event. */
#include <trackway/trackway.h>

TRACKWAY_EVENT(lab, number, TRACKWAY_INFO, (u32, value));

#define LAB_EVENT(number_) trackway(lab, number, number_)

#include "latency.h"
