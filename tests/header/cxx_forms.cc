/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where C++ lets a call stand. Run without a library: nothing may happen. */
#include <string>
#include <vector>
#include <trackway/trackway.h>

enum class Phase : unsigned char { idle, busy };

TRACKWAY_ENUM(forms, phase, (idle, 0), (busy, 1));
TRACKWAY_EVENT(forms, call, TRACKWAY_INFO, (str, who), (u64, value));
TRACKWAY_EVENT(forms, data, TRACKWAY_INFO, (text, bytes), (seq, numbers, u32),
    (enum, phase, forms, phase, u8));

namespace deep {
TRACKWAY_EVENT(forms, inside, TRACKWAY_INFO, (i32, value)); /* a namespace may have its own */

namespace deeper {
inline void function(int value)
{
    trackway(forms, call, "function", static_cast<uint64_t>(value));
    trackway(forms, inside, value);
}
} // namespace deeper
} // namespace deep

template <typename A, typename B> struct Pair {
    A a;
    B b;
    Pair() : a(), b() { trackway(forms, call, "constructor", sizeof(*this)); }
    ~Pair() { trackway(forms, call, "destructor", sizeof(Pair<A, B>)); }
    uint64_t sum() const { return uint64_t(a) + uint64_t(b); }
    void member() const
    {
        trackway(forms, call, "member", sum());
        trackway_log(TRACKWAY_DEBUG, "sum %d", static_cast<int>(sum()));
    }
};

template <typename Value> int function_template(Value value)
{
    trackway(forms, call, "template", value);
    return trackway_enabled(forms, call);
}

int main()
{
    const std::string string = "string";
    const std::vector<uint32_t> numbers = {1, 2, 3};
    const auto lambda = [&string](uint64_t value) {
        trackway(forms, call, string.c_str(), value);
        trackway_printf("%s", string.c_str());
    };
    deep::deeper::function(1);
    lambda(2);
    Pair<int, char>().member();
    trackway(forms, call, "comma in template", Pair<int, int>().sum());
    trackway(forms, call, "lambda as argument", [] { return 1u; }());
    trackway(forms, data, string.data(), string.size(), numbers.data(), numbers.size(),
             static_cast<unsigned char>(Phase::busy));
    return function_template(3u);
}
