// What a filter in restricted C needs: types, and the helpers of docs/design/0008-filters.md.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

#define FUNCTION static __attribute__((noinline))

static s64 (*string_compare)(const u64 *frame, u64 a, u64 b) = (void *)1;
static u64 (*string_matches)(const u64 *frame, u64 text, u64 pattern) = (void *)2;
static u64 (*string_hash)(const u64 *frame, u64 text) = (void *)6;
static u64 (*any)(const u64 *frame, u64 sequence, u64 scalar, void *function) = (void *)8;
static u64 (*count)(const u64 *frame, u64 cell) = (void *)18;

u64 filter(const u64 *f);
