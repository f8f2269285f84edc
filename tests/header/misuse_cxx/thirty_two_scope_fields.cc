// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: misuse:work_begin: more than 32 fields
#include <trackway/trackway.hpp>
TRACKWAY_SCOPE_EVENT(misuse, work, TRACKWAY_INFO,
    (u8, f1), (u8, f2), (u8, f3), (u8, f4), (u8, f5), (u8, f6), (u8, f7), (u8, f8),
    (u8, f9), (u8, f10), (u8, f11), (u8, f12), (u8, f13), (u8, f14), (u8, f15), (u8, f16),
    (u8, f17), (u8, f18), (u8, f19), (u8, f20), (u8, f21), (u8, f22), (u8, f23), (u8, f24),
    (u8, f25), (u8, f26), (u8, f27), (u8, f28), (u8, f29), (u8, f30), (u8, f31), (u8, f32));
