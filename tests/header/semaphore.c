/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A debugger that attaches to the SDT probe raises its semaphore: then the call is made, but
 * nothing is recorded. */
#include "fake_agent.h"
#include <stdio.h>
#include <trackway/trackway.h>

TRACKWAY_EVENT(semaphore, raised, TRACKWAY_INFO, (u32, value));

int main(void)
{
    uint32_t evaluated = 0;
    trackway_semaphore_semaphore_DOT_raised = 1;
    trackway(semaphore, raised, ++evaluated);
    printf("evaluated %u, enabled %d\n", evaluated, trackway_enabled(semaphore, raised));
    fake_agent_enable(1);
    trackway(semaphore, raised, ++evaluated);
    return 0;
}
