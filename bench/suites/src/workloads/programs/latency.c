/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The loop without an event. */
#define LAB_EVENT(number) ((void)(number))

#include "latency.h"
