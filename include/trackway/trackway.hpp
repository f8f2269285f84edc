// SPDX-License-Identifier: MIT OR Apache-2.0
/**
 * @file
 * Trackway's events for C++: strings and containers as arguments, and scopes.
 *
 * @code
 *     #include <trackway/trackway.hpp>
 *
 *     TRACKWAY_EVENT(myapp, request, TRACKWAY_INFO,
 *         (text, path), (u32, status), (seq, ids, u32));
 *     TRACKWAY_SCOPE_EVENT(myapp, parse, TRACKWAY_DEBUG, (text, file));
 *
 *     void parse(std::string_view file)
 *     {
 *         trackway_scope(myapp, parse, file); // ends with the function, however that is left
 *         const std::vector<std::uint32_t> ids = {7, 8, 9};
 *         trackway(myapp, request, file, 200, ids);
 *     }
 *
 *     int main()
 *     {
 *         parse("/index.html");
 *     }
 *
 *     c++ hello.cc -o hello && trackway record -- ./hello
 * @endcode
 *
 * It includes <trackway/trackway.h>, whose comments describe events, and adds the types of C++.
 * Events that are declared after it take arguments as C++ programs have them:
 *
 * | field               | takes, in addition to the arguments in C                              |
 * |---------------------|-----------------------------------------------------------------------|
 * | `(str, N)`          | any type with `c_str()`: std::string, std::filesystem::path           |
 * | `(text, N)`         | one argument: std::string_view, std::string, `const char *`, …        |
 * | `(array, N, T, L)`  | std::array or std::span of `L` elements                               |
 * | `(seq, N, T)`       | one argument: std::vector, std::span, `T[L]`, an initializer list, …  |
 * | `(enum, N, …)`      | an enum class; TRACKWAY_ENUM() takes its enumerators as values        |
 *
 * A call either gives all of its text and seq fields as one argument each, or, as in C, all of
 * them as pointer and size; trackway::text and trackway::seq make one argument of such a pair.
 *
 * Only the record itself is copied, nothing is allocated, nothing throws. A disabled call costs as
 * much as in C, and its arguments are not evaluated; an enabled call compiles to the same code as
 * if `data()` and `size()` had been written out. C++11 and later, GCC and Clang, with and
 * without exceptions and run-time type information.
 */
#ifndef TRACKWAY_TRACKWAY_HPP
#define TRACKWAY_TRACKWAY_HPP

#ifndef __cplusplus
#error "<trackway/trackway.hpp> is for C++; C programs include <trackway/trackway.h>"
#endif

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <trackway/trackway.h>

/**
 * Declares a pair of events for @ref trackway_scope, at file or namespace scope, like
 * TRACKWAY_EVENT(): `PROVIDER:NAME_begin` with the field `(x64, scope)` and the given fields, up to
 * 31, and `PROVIDER:NAME_end` with only `scope`.
 *
 * `scope` is the address of the scope's object: it differs between all scopes of a process that are
 * open at a time. So a begin belongs to the next end of the same process with the same scope,
 * also where coroutines end on other threads than they began on, and where events were lost: a
 * begin that is followed by another begin of the same scope has lost its end. A scope's duration is
 * the difference of the two events' times.
 */
#define TRACKWAY_SCOPE_EVENT(...) TRACKWAY_I_SCOPE_EVENT(__VA_ARGS__, TRACKWAY_I_PADS)

/**
 * `trackway_scope(PROVIDER, NAME, ARGUMENT...)`: records the scope's begin now, and its end when
 * the enclosing block is left: by its end, `return`, `break`, `goto`, `co_return` or an exception.
 *
 * A declaration of a local variable without a name of yours; it needs a line of its own. If the
 * begin is off, arguments are not evaluated, and the end is off, too: a recording that begins in
 * the middle of a scope does not get its end. If the begin was recorded, so is the end, unless its
 * session ended meanwhile. `--event 'PROVIDER:NAME_*'` selects both.
 *
 * Thread-safe and async-signal-safe, as `trackway()` is; a fork child ends the scopes that it was
 * forked in, too. Does not throw, block, allocate or change errno.
 */
#define trackway_scope(...) TRACKWAY_I_SCOPE(TRACKWAY_I_SCOPE_NAME(__LINE__), __VA_ARGS__, 0)

/// Not for use: strnlen(3), which <cstring> declares only for POSIX.
extern "C" std::size_t trackway_i_measure(const char *string, std::size_t size) __asm__("strnlen");

namespace trackway {

/// Not for use: checks and conversions for the types below.
namespace detail {

template <bool Condition> using when = typename std::enable_if<Condition, int>::type;
template <typename T> using plain = typename std::remove_cv<T>::type;

template <typename T> T &&value() noexcept;

/// Whether a `T` has contiguous elements: `data()` and `size()`.
template <typename T, typename = void> struct is_contiguous : std::false_type {};
template <typename T>
struct is_contiguous<T, decltype(static_cast<void>(*value<const T &>().data()),
                                 static_cast<void>(std::size_t(value<const T &>().size())))>
    : std::true_type {};

/// Whether a `T` has a terminated string: `c_str()`.
template <typename T, typename = void> struct has_c_str : std::false_type {};
template <typename T>
struct has_c_str<T, decltype(static_cast<void>(*value<const T &>().c_str()))> : std::true_type {};

/// Whether a `T` is a class that converts to a C string.
template <typename T>
struct is_like_pointer
    : std::integral_constant<bool, std::is_class<T>::value &&
                                       std::is_convertible<const T &, const char *>::value> {};

/// Whether a `T` is, or converts to, a pointer to characters.
template <typename T>
struct is_string_pointer
    : std::integral_constant<bool, std::is_convertible<const T &, const char *>::value
#ifdef __cpp_char8_t
                                       || std::is_convertible<const T &, const char8_t *>::value
#endif
                             > {
};

/// An element of a contiguous container.
template <typename T>
using element = plain<typename std::remove_reference<decltype(*value<const T &>().data())>::type>;

/// A character of text: `char`, and `char8_t` where there is one.
template <typename T> struct is_character : std::is_same<T, char> {};
#ifdef __cpp_char8_t
template <> struct is_character<char8_t> : std::true_type {};
#endif

/// True if `T` is the type of NULL. The compiler distinguishes NULL from a number of that type:
/// only NULL converts to a pointer.
template <typename T> struct is_null : std::is_same<T, decltype(NULL)> {};

/// The integer beneath an enumeration; of other types: themselves.
template <typename T, bool = std::is_enum<T>::value> struct number_of {
    using type = T;
};
template <typename T> struct number_of<T, true> {
    using type = typename std::underlying_type<T>::type;
};

/// True if elements of type `From` lie in memory as elements of a field of type `To` do. Integers
/// may have other names (`long`, `long long`, enumerations), not other sizes or signs; bytes may
/// be any that there are; addresses are x64.
template <typename To, typename From> struct is_same_in_memory {
    using number = typename number_of<From>::type;
    static constexpr bool integers = std::is_integral<To>::value &&
                                     std::is_integral<number>::value &&
                                     !std::is_same<To, bool>::value &&
                                     !std::is_same<number, bool>::value;
    static constexpr bool value =
        std::is_same<To, From>::value ||
        (sizeof(To) == sizeof(From) &&
         ((integers && (std::is_signed<To>::value == std::is_signed<number>::value ||
                        is_character<From>::value)) ||
          (std::is_pointer<From>::value && std::is_integral<To>::value &&
           std::is_unsigned<To>::value)));
};

/// Pointers to elements that are the same in memory; only bytes are read through them.
template <typename To, typename From> const To *view(const From *elements) noexcept
{
    return static_cast<const To *>(static_cast<const void *>(elements));
}

/// The number of a label of TRACKWAY_ENUM().
template <typename T> constexpr std::int64_t label(T value) noexcept
{
    return static_cast<std::int64_t>(value);
}

/// The identity of the scope there.
inline std::uint64_t address(const void *scope) noexcept
{
    return reinterpret_cast<std::uintptr_t>(scope);
}

template <typename> struct never : std::false_type {};

/// The argument of C's form of a call for a field `(array, N, T, Length)`: a pointer as in C, but
/// an array only of that length.
template <typename T, std::size_t Length> struct elements {
    constexpr elements(std::nullptr_t) noexcept : address(nullptr) {}

    template <typename P, when<!std::is_array<P>::value &&
                               std::is_convertible<const P &, const T *>::value> = 0>
    constexpr elements(const P &pointer) noexcept : address(pointer)
    {
    }

    template <typename U, std::size_t Size, when<std::is_same<plain<U>, T>::value> = 0>
    constexpr elements(const U (&array)[Size]) noexcept : address(array)
    {
        static_assert(Size == Length, "the array is not as long as the field was declared");
    }

    const T *address;
};

} // namespace detail

/**
 * An argument for a field `(str, N)`: a string that ends with a NUL.
 *
 * A view; its source must live until the call is over, as temporaries do.
 */
class str {
public:
    /// A C string; null is recorded as "(null)".
    constexpr str(const char *string) noexcept : string_(string) {}
#ifdef __cpp_char8_t
    template <typename T, detail::when<std::is_same<T, char8_t>::value> = 0>
    str(const T *string) noexcept : string_(detail::view<char>(string))
    {
    }
#endif
    template <typename T, detail::when<std::is_same<T, std::nullptr_t>::value> = 0>
    constexpr str(T) noexcept : string_(nullptr)
    {
    }

    /// Whatever has `c_str()`: std::string, std::filesystem::path.
    template <typename T, detail::when<detail::has_c_str<T>::value> = 0>
    str(const T &string) noexcept : string_(detail::view<char>(string.c_str()))
    {
        static_assert(sizeof(*string.c_str()) == 1, "a str field takes strings of char");
    }

    /// A class that converts to a C string.
    template <typename T, detail::when<!detail::has_c_str<T>::value &&
                                       detail::is_like_pointer<T>::value> = 0>
    str(const T &string) noexcept : string_(string)
    {
    }

    /// A string without a terminator cannot be a str.
    template <typename T, detail::when<!detail::has_c_str<T>::value &&
                                       !detail::is_string_pointer<T>::value &&
                                       !detail::is_null<T>::value> = 0>
    str(const T &) noexcept : string_(nullptr)
    {
        static_assert(detail::never<T>::value,
                      "a str field takes a const char * or what has c_str(); for a "
                      "std::string_view, declare the field as text");
    }

    constexpr const char *data() const noexcept { return string_; }

private:
    const char *string_;
};

/**
 * An argument for a field `(text, N)`: characters and their number. UTF-8 is expected, not checked.
 *
 * A view; its source must live until the call is over, as temporaries do.
 */
class text {
public:
    /// A C string; null is recorded as "(null)".
    text(const char *string) noexcept
        : bytes_(string), size_(string ? trackway_i_measure(string, TRACKWAY_ABI_PAYLOAD_MAX) : 0)
    {
    }

#ifdef __cpp_char8_t
    template <typename T, detail::when<std::is_same<T, char8_t>::value> = 0>
    text(const T *string) noexcept : text(detail::view<char>(string))
    {
    }
#endif
    template <typename T, detail::when<std::is_same<T, std::nullptr_t>::value> = 0>
    constexpr text(T) noexcept : bytes_(nullptr), size_(0)
    {
    }

    /// `size` characters; null is recorded as "(null)".
    constexpr text(const char *bytes, std::size_t size) noexcept : bytes_(bytes), size_(size) {}

    /// Whatever has `data()` and `size()`: std::string_view, std::string, std::vector<char>.
    template <typename T, detail::when<detail::is_contiguous<T>::value> = 0>
    text(const T &string) noexcept
        : bytes_(string.size() ? detail::view<char>(string.data()) : ""),
          size_(static_cast<std::size_t>(string.size()))
    {
        static_assert(detail::is_character<detail::element<T>>::value,
                      "a text field takes strings of char or char8_t");
    }

    /// Whatever has only `c_str()`: std::filesystem::path.
    template <typename T, detail::when<!detail::is_contiguous<T>::value &&
                                       detail::has_c_str<T>::value> = 0>
    text(const T &string) noexcept : text(detail::view<char>(string.c_str()))
    {
        static_assert(sizeof(*string.c_str()) == 1, "a text field takes strings of char");
    }

    /// A class that converts to a C string.
    template <typename T, detail::when<!detail::is_contiguous<T>::value &&
                                       !detail::has_c_str<T>::value &&
                                       detail::is_like_pointer<T>::value> = 0>
    text(const T &string) noexcept : text(static_cast<const char *>(string))
    {
    }

    /// Other things are no text.
    template <typename T, detail::when<!detail::is_contiguous<T>::value &&
                                       !detail::has_c_str<T>::value &&
                                       !detail::is_string_pointer<T>::value &&
                                       !detail::is_null<T>::value> = 0>
    text(const T &) noexcept : bytes_(nullptr), size_(0)
    {
        static_assert(detail::never<T>::value,
                      "a text field takes a const char *, or what has data() and size(), such as "
                      "std::string_view");
    }

    constexpr const char *data() const noexcept { return bytes_; }
    constexpr std::size_t size() const noexcept { return size_; }

private:
    const char *bytes_;
    std::size_t size_;
};

/**
 * An argument for a field `(seq, N, T)`: elements that lie one after the other.
 *
 * A view; its source must live until the call is over, as temporaries do.
 */
template <typename T> class seq {
public:
    /// `size` elements; null is recorded as no element.
    constexpr seq(const T *elements, std::size_t size) noexcept : elements_(elements), size_(size)
    {
    }

    /// A list in braces.
    seq(std::initializer_list<T> list) noexcept : elements_(nullptr), size_(list.size())
    {
        // Outlives this constructor: its array ends with the full expression, as the call does.
        elements_ = list.begin();
    }

    /// An array.
    template <typename U, std::size_t Size>
    constexpr seq(const U (&elements)[Size]) noexcept
        : elements_(detail::view<T>(elements)), size_(Size)
    {
        static_assert(detail::is_same_in_memory<T, detail::plain<U>>::value,
                      "the elements are not of the type that the seq field was declared with");
    }

    /// Whatever has `data()` and `size()`: std::vector, std::array, std::span, std::string.
    template <typename C, detail::when<detail::is_contiguous<C>::value> = 0>
    seq(const C &container) noexcept
        : elements_(detail::view<T>(container.data())),
          size_(static_cast<std::size_t>(container.size()))
    {
        static_assert(detail::is_same_in_memory<T, detail::element<C>>::value,
                      "the elements are not of the type that the seq field was declared with");
    }

    /// Other containers do not have their elements one after the other.
    template <typename C, detail::when<!detail::is_contiguous<C>::value> = 0>
    seq(const C &) noexcept : elements_(nullptr), size_(0)
    {
        static_assert(detail::never<C>::value,
                      "a seq field takes what has data() and size(), such as std::vector (not of "
                      "bool) and std::span, an array, or a list in braces");
    }

    constexpr const T *data() const noexcept { return elements_; }
    constexpr std::size_t size() const noexcept { return size_; }

private:
    const T *elements_;
    std::size_t size_;
};

/**
 * An argument for a field `(array, N, T, Length)`.
 *
 * A view; its source must live until the call is over, as temporaries do.
 */
template <typename T, std::size_t Length> class array {
public:
    /// `Length` elements; null is recorded as zeros.
    constexpr array(const T *elements) noexcept : elements_(elements) {}

    /// An array of the field's length. (A part of a longer one goes by a pointer.)
    template <typename U, std::size_t Size>
    constexpr array(const U (&elements)[Size]) noexcept : elements_(detail::view<T>(elements))
    {
        static_assert(Size == Length, "the array is not as long as the field was declared");
        static_assert(detail::is_same_in_memory<T, detail::plain<U>>::value,
                      "the elements are not of the type that the array field was declared with");
    }

    /// A container whose type has the field's length: std::array, std::span.
    template <template <typename, std::size_t> class C, typename U, std::size_t Size>
    array(const C<U, Size> &container) noexcept : elements_(detail::view<T>(container.data()))
    {
        static_assert(Size == Length, "the container is not as long as the field was declared");
        static_assert(detail::is_same_in_memory<T, detail::plain<U>>::value,
                      "the elements are not of the type that the array field was declared with");
    }

    constexpr const T *data() const noexcept { return elements_; }

private:
    const T *elements_;
};

/**
 * An argument for a field `(enum, N, PROVIDER, E, T)`: an integer, or an enumerator of any
 * enumeration that fits.
 */
template <typename T> class enumeration {
public:
    /// An integer, converted as in a function call.
    constexpr enumeration(T number) noexcept : number_(number) {}

    /// An enumerator, scoped or not.
    template <typename E, detail::when<std::is_enum<E>::value> = 0>
    constexpr enumeration(E enumerator) noexcept : number_(static_cast<T>(enumerator))
    {
        static_assert(sizeof(E) <= sizeof(T) || std::is_convertible<E, T>::value,
                      "the enumeration is wider than the integer type of the enum field");
    }

    constexpr T number() const noexcept { return number_; }

private:
    T number_;
};

/**
 * The type of the variable that @ref trackway_scope declares. `End` records the end.
 *
 * Its address is the scope's identity in the trace, so it can be neither copied nor moved.
 */
template <void (*End)(std::uint64_t, int)> class scope {
public:
    /// `begun`: whether the begin was recorded, so that the end is to be.
    explicit scope(bool begun) noexcept : begun_(begun) {}

    ~scope()
    {
        if (__builtin_expect(begun_, 0))
            End(detail::address(this), 0);
    }

    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

private:
    const bool begun_;
};

} // namespace trackway

/* ---------------------------------------------------------------------------------------------
 * The rest is not for use. An event's function has a second form, with another last parameter than
 * C's, which takes the types above and passes on the arguments of C. It is always inlined: the
 * compiler treats a call as if data() and size() had been written there.
 */

#undef TRACKWAY_I_LABEL_NUMBER
#define TRACKWAY_I_LABEL_NUMBER(value) ::trackway::detail::label(value)

/* C's form of an array field, whose argument has its length if it is an array. */
#undef TRACKWAY_I_PARAM_ARRAY
#define TRACKWAY_I_PARAM_ARRAY(type, name, element, length)                                       \
    ::trackway::detail::elements<TRACKWAY_I_C_TYPE(element), (length)> trackway_field_##name,
#ifdef TRACKWAY_I_PUT_ARRAY
#undef TRACKWAY_I_ARGUMENT_ARRAY
#define TRACKWAY_I_ARGUMENT_ARRAY(type, name, element, length) {trackway_field_##name.address, 0},
#undef TRACKWAY_I_PUT_ARRAY
#define TRACKWAY_I_PUT_ARRAY(type, name, element, length)                                         \
    trackway_i_end = trackway_i_put_array(trackway_i_end, trackway_field_##name.address,          \
                                          sizeof(*trackway_field_##name.address) * (length));
#endif
#ifdef TRACKWAY_I_OPERAND_ARRAY
#undef TRACKWAY_I_OPERAND_ARRAY
#define TRACKWAY_I_OPERAND_ARRAY(type, name, element, length)                                     \
    , [trackway_field_##name] "nor"(trackway_field_##name.address)
#endif

/* Pass TAKE: parameters of the second form. */
#define TRACKWAY_I_TAKE(type, ...) TRACKWAY_I_PASS(TAKE, type, __VA_ARGS__)
#define TRACKWAY_I_TAKE_SCALAR(type, name) TRACKWAY_I_C_TYPE(type) trackway_field_##name,
#define TRACKWAY_I_TAKE_POINTER(type, name) const void *trackway_field_##name,
#define TRACKWAY_I_TAKE_STR(type, name) ::trackway::str trackway_field_##name,
#define TRACKWAY_I_TAKE_TEXT(type, name) ::trackway::text trackway_field_##name,
#define TRACKWAY_I_TAKE_ARRAY(type, name, element, length)                                        \
    ::trackway::array<TRACKWAY_I_C_TYPE(element), (length)> trackway_field_##name,
#define TRACKWAY_I_TAKE_SEQ(type, name, element)                                                  \
    ::trackway::seq<TRACKWAY_I_C_TYPE(element)> trackway_field_##name,
#define TRACKWAY_I_TAKE_ENUM(type, name, provider, labels, integer)                               \
    ::trackway::enumeration<TRACKWAY_I_C_TYPE(integer)> trackway_field_##name,
#define TRACKWAY_I_TAKE_PAD(...)

/* Pass GIVE: the arguments in C. */
#define TRACKWAY_I_GIVE(type, ...) TRACKWAY_I_PASS(GIVE, type, __VA_ARGS__)
#define TRACKWAY_I_GIVE_SCALAR(type, name) trackway_field_##name,
#define TRACKWAY_I_GIVE_POINTER(type, name) trackway_field_##name,
#define TRACKWAY_I_GIVE_STR(type, name) trackway_field_##name.data(),
#define TRACKWAY_I_GIVE_TEXT(type, name) trackway_field_##name.data(), trackway_field_##name.size(),
#define TRACKWAY_I_GIVE_ARRAY(type, name, element, length) trackway_field_##name.data(),
#define TRACKWAY_I_GIVE_SEQ(type, name, element)                                                  \
    trackway_field_##name.data(), trackway_field_##name.size(),
#define TRACKWAY_I_GIVE_ENUM(type, name, provider, labels, integer) trackway_field_##name.number(),
#define TRACKWAY_I_GIVE_PAD(...)

#undef TRACKWAY_I_MORE
#define TRACKWAY_I_MORE(p, n, ...)                                                                \
    static inline __attribute__((__unused__, __always_inline__)) void                             \
    trackway_emit_##p##_DOT_##n(TRACKWAY_I_EACH(TRACKWAY_I_TAKE, __VA_ARGS__)                     \
                                    long)                                                         \
    {                                                                                             \
        trackway_emit_##p##_DOT_##n(TRACKWAY_I_EACH(TRACKWAY_I_GIVE, __VA_ARGS__) 0);             \
    }

#define TRACKWAY_I_SCOPE_EVENT(p, n, level, ...)                                                  \
    TRACKWAY_I_EVENT(p, n##_begin, level, (x64, scope), __VA_ARGS__);                             \
    TRACKWAY_I_EVENT(p, n##_end, level, (x64, scope), TRACKWAY_I_PADS)

#define TRACKWAY_I_SCOPE_NAME(line) TRACKWAY_I_SCOPE_NAME_(line)
#define TRACKWAY_I_SCOPE_NAME_(line) trackway_i_scope_##line
#define TRACKWAY_I_SCOPE(...) TRACKWAY_I_SCOPE_(__VA_ARGS__)
#ifdef TRACKWAY_DISABLE
#define TRACKWAY_I_SCOPE_(name, p, n, ...)                                                        \
    (0 ? trackway_emit_##p##_DOT_##n##_begin(0, __VA_ARGS__) : static_cast<void>(0))
#else
#define TRACKWAY_I_SCOPE_(name, p, n, ...)                                                        \
    const ::trackway::scope<trackway_emit_##p##_DOT_##n##_end> name(                              \
        __builtin_expect(TRACKWAY_I_ENABLED(p, n##_begin), 0)                                     \
            ? (trackway_emit_##p##_DOT_##n##_begin(::trackway::detail::address(&name),            \
                                                   __VA_ARGS__),                                  \
               true)                                                                              \
            : false)
#endif

#endif
