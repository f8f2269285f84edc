/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libtrackway-dl.so: preloaded, it records which shared objects a program has loaded, and when it
 * loads and unloads more. Events and fields have LTTng-UST's names, so that analyses that turn
 * addresses into functions and lines work (babeltrace2's debug-info, Trace Compass).
 *
 *     lttng_ust_statedump   all objects, when the process starts; and again at its next dlopen() or
 *                           dlclose() after a fork, or after a new session has begun
 *     lttng_ust_dl          calls of dlopen(), dlmopen() and dlclose()
 *     lttng_ust_lib         objects that these calls loaded and unloaded, dependencies included
 *
 * The data about an object comes from its program headers in memory, except its canonical path and
 * its debug link, for which the file is opened: by system calls, so that no other helper records
 * it. None of this can be called in a signal handler, nor can dlopen().
 */
#define _GNU_SOURCE
#include "helper.h"
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

TRACKWAY_EVENT(lttng_ust_statedump, start, TRACKWAY_DEBUG_LINE);
TRACKWAY_EVENT(lttng_ust_statedump, bin_info, TRACKWAY_DEBUG_LINE,
    (ptr, baddr), (u64, memsz), (str, path), (u8, is_pic), (u8, has_build_id),
    (u8, has_debug_link));
TRACKWAY_EVENT(lttng_ust_statedump, build_id, TRACKWAY_DEBUG_LINE,
    (ptr, baddr), (seq, build_id, x8));
TRACKWAY_EVENT(lttng_ust_statedump, debug_link, TRACKWAY_DEBUG_LINE,
    (ptr, baddr), (u32, crc), (str, filename));
TRACKWAY_EVENT(lttng_ust_statedump, end, TRACKWAY_DEBUG_LINE);

TRACKWAY_EVENT(lttng_ust_dl, dlopen, TRACKWAY_DEBUG_LINE,
    (ptr, baddr), (u64, memsz), (x32, flags), (str, path), (u8, has_build_id),
    (u8, has_debug_link));
TRACKWAY_EVENT(lttng_ust_dl, dlmopen, TRACKWAY_DEBUG_LINE,
    (ptr, baddr), (u64, memsz), (i64, nsid), (x32, flags), (str, path), (u8, has_build_id),
    (u8, has_debug_link));
TRACKWAY_EVENT(lttng_ust_dl, build_id, TRACKWAY_DEBUG_LINE, (ptr, baddr), (seq, build_id, x8));
TRACKWAY_EVENT(lttng_ust_dl, debug_link, TRACKWAY_DEBUG_LINE,
    (ptr, baddr), (u32, crc), (str, filename));
TRACKWAY_EVENT(lttng_ust_dl, dlclose, TRACKWAY_DEBUG_LINE, (ptr, baddr));

TRACKWAY_EVENT(lttng_ust_lib, load, TRACKWAY_DEBUG_LINE,
    (ptr, baddr), (u64, memsz), (str, path), (u8, has_build_id), (u8, has_debug_link));
TRACKWAY_EVENT(lttng_ust_lib, build_id, TRACKWAY_DEBUG_LINE, (ptr, baddr), (seq, build_id, x8));
TRACKWAY_EVENT(lttng_ust_lib, debug_link, TRACKWAY_DEBUG_LINE,
    (ptr, baddr), (u32, crc), (str, filename));
TRACKWAY_EVENT(lttng_ust_lib, unload, TRACKWAY_DEBUG_LINE, (ptr, baddr));

/* --- Data about an object ------------------------------------------------------------------- */

enum {
    BUILD_ID_MAX = 64,   /* bytes; linkers make 16 or 20 */
    LINK_MAX = 256,      /* bytes of a debug link's name */
    SECTIONS_MAX = 4096, /* of a file that are looked at */
    NAMES_MAX = 64
};

struct object {
    const void *baddr; /* address of its first byte */
    uint64_t memsz;    /* from there to the end of its last segment, in bytes */
    const unsigned char *build_id; /* null if it has none */
    size_t build_id_size;
    int is_pic;
    int has_debug_link;
    uint32_t crc;
    char link[LINK_MAX];
    char path[PATH_MAX];
};

/* The object's build-id, if these notes have it. */
static void read_notes(struct object *object, const unsigned char *notes, size_t size,
                       size_t alignment)
{
    size_t at = 0;
    if (alignment != 8)
        alignment = 4;
    while (size >= sizeof(ElfW(Nhdr)) && at <= size - sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        size_t name, content, end;
        memcpy(&note, notes + at, sizeof(note));
        name = at + sizeof(note);
        content = (name + note.n_namesz + alignment - 1) & ~(alignment - 1);
        end = content + note.n_descsz;
        if (end > size)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(notes + name, "GNU", 4) == 0 && note.n_descsz <= BUILD_ID_MAX) {
            object->build_id = notes + content;
            object->build_id_size = note.n_descsz;
            return;
        }
        at = (end + alignment - 1) & ~(alignment - 1);
    }
}

/* Address, size and build-id, from its program headers. */
static void read_headers(struct object *object, uintptr_t bias, const ElfW(Phdr) * headers,
                         size_t count)
{
    uintptr_t low = UINTPTR_MAX, high = 0;
    size_t i;
    object->build_id = NULL;
    object->build_id_size = 0;
    for (i = 0; i < count; i++) {
        const ElfW(Phdr) *header = &headers[i];
        if (header->p_type == PT_LOAD) {
            if (header->p_vaddr < low)
                low = header->p_vaddr;
            if (header->p_vaddr + header->p_memsz > high)
                high = header->p_vaddr + header->p_memsz;
        } else if (header->p_type == PT_NOTE && !object->build_id) {
            const unsigned char *notes;
            const uintptr_t address = bias + header->p_vaddr;
            memcpy(&notes, &address, sizeof(notes));
            read_notes(object, notes, header->p_memsz, header->p_align);
        }
    }
    if (low > high)
        low = high = 0;
    low += bias;
    memcpy(&object->baddr, &low, sizeof(low));
    object->memsz = high + bias - low;
    object->is_pic = bias != 0;
}

static int read_at(int file, void *to, size_t size, uint64_t at)
{
    return syscall(SYS_pread64, file, to, size, (off_t)at) == (long)size;
}

/* The debug link of the ELF file `file`: a section that is not loaded, with a name and a CRC. */
static void read_debug_link(struct object *object, int file)
{
    ElfW(Ehdr) head;
    ElfW(Shdr) names, section;
    size_t i;
    if (!read_at(file, &head, sizeof(head), 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_shentsize != sizeof(section) || head.e_shnum > SECTIONS_MAX ||
        !read_at(file, &names, sizeof(names),
                 head.e_shoff + (uint64_t)head.e_shstrndx * sizeof(section)))
        return;
    for (i = 0; i < head.e_shnum; i++) {
        char name[sizeof(".gnu_debuglink")];
        size_t length;
        if (!read_at(file, &section, sizeof(section), head.e_shoff + i * sizeof(section)))
            return;
        if (section.sh_type != SHT_PROGBITS || section.sh_flags & SHF_ALLOC ||
            section.sh_size > LINK_MAX || section.sh_size < 8 ||
            !read_at(file, name, sizeof(name), names.sh_offset + section.sh_name) ||
            memcmp(name, ".gnu_debuglink", sizeof(name)) != 0)
            continue;
        if (!read_at(file, object->link, section.sh_size, section.sh_offset))
            return;
        length = strnlen(object->link, section.sh_size);
        if (length + 1 > section.sh_size - 4)
            return;
        memcpy(&object->crc, object->link + section.sh_size - 4, 4);
        object->has_debug_link = 1;
        return;
    }
}

/* Its path, canonical if the file can be opened, and the data that only the file has. */
static void read_file(struct object *object, const char *name)
{
    char self[NAMES_MAX];
    long length = -1;
    const int is_program = !name || !*name;
    const long file =
        syscall(SYS_openat, AT_FDCWD, is_program ? "/proc/self/exe" : name, O_RDONLY | O_CLOEXEC);
    object->has_debug_link = 0;
    if (file >= 0) {
        snprintf(self, sizeof(self), "/proc/self/fd/%ld", file);
        length = readlink(self, object->path, sizeof(object->path) - 1);
        read_debug_link(object, (int)file);
        syscall(SYS_close, file);
    }
    if (length >= 0)
        object->path[length] = 0;
    else /* LTTng's name for an object without a file, such as the vDSO */
        snprintf(object->path, sizeof(object->path), "[%s]", is_program ? "program" : name);
}

/*
 * Where the object of a link map is. It may be of any namespace, so its program headers are found
 * through its first mapping, which begins with the ELF header if the file does. Whether it did.
 */
static int read_map(struct object *object, const struct link_map *map)
{
    Dl_info info;
    const ElfW(Ehdr) * head;
    const unsigned char *first;
    if (!dladdr(map->l_ld, &info) || memcmp(info.dli_fbase, ELFMAG, SELFMAG) != 0)
        return 0;
    first = info.dli_fbase;
    head = info.dli_fbase;
    if (head->e_phentsize != sizeof(ElfW(Phdr)))
        return 0;
    read_headers(object, map->l_addr, (const void *)(first + head->e_phoff), head->e_phnum);
    return 1;
}

#define RECORD_DETAILS(provider, object)                                                          \
    do {                                                                                          \
        if ((object)->build_id)                                                                   \
            trackway(provider, build_id, (object)->baddr, (object)->build_id,                     \
                     (object)->build_id_size);                                                    \
        if ((object)->has_debug_link)                                                             \
            trackway(provider, debug_link, (object)->baddr, (object)->crc, (object)->link);       \
    } while (0)

/* --- The objects that are loaded ------------------------------------------------------------- */

/*
 * The objects that were there when it was last looked. One for which there is no room comes and
 * goes unnoticed. All of this is changed only while the loader's lock is held: in callbacks of
 * dl_iterate_phdr(). The name is the loader's, may be gone, and is compared as an address.
 */
enum { KNOWN_MAX = 2048 };
static struct {
    uintptr_t bias;
    const char *name;
    const void *baddr;
    unsigned seen; /* the look at which it was last there; 0 if the place is free */
} known[KNOWN_MAX];
static unsigned look;
/* How many objects the loader had added and removed by then. */
static unsigned long long adds, subs;

static ASIDE void record_load(const struct dl_phdr_info *info)
{
    struct object object;
    read_headers(&object, info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum);
    read_file(&object, info->dlpi_name);
    trackway(lttng_ust_lib, load, object.baddr, object.memsz, object.path,
             object.build_id != NULL, object.has_debug_link);
    RECORD_DETAILS(lttng_ust_lib, &object);
}

static const void *base_of(const struct dl_phdr_info *info)
{
    struct object object;
    read_headers(&object, info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum);
    return object.baddr;
}

/* Visits one object; `records` points at whether a new one is recorded. */
static int see(struct dl_phdr_info *info, size_t size, void *records)
{
    size_t i, place = KNOWN_MAX;
    (void)size;
    for (i = 0; i < KNOWN_MAX; i++) {
        if (!known[i].seen) {
            if (place == KNOWN_MAX)
                place = i;
        } else if (known[i].bias == info->dlpi_addr && known[i].name == info->dlpi_name) {
            known[i].seen = look;
            return 0;
        }
    }
    if (place == KNOWN_MAX)
        return 0;
    known[place].bias = info->dlpi_addr;
    known[place].name = info->dlpi_name;
    known[place].baddr = base_of(info);
    known[place].seen = look;
    if (*(const int *)records)
        record_load(info);
    return 0;
}

/*
 * Looks at all objects, from within a look at the first one: the loader's lock is recursive, and so
 * is held for all of it.
 */
static int look_at_all(struct dl_phdr_info *info, size_t size, void *records)
{
    size_t i;
    (void)size;
    if (look && info->dlpi_adds == adds && info->dlpi_subs == subs)
        return 1;
    adds = info->dlpi_adds;
    subs = info->dlpi_subs;
    if (++look == 0)
        look = 1;
    dl_iterate_phdr(see, records);
    for (i = 0; i < KNOWN_MAX; i++)
        if (known[i].seen && known[i].seen != look) {
            known[i].seen = 0;
            if (*(const int *)records)
                trackway(lttng_ust_lib, unload, known[i].baddr);
        }
    return 1;
}

static void update(int records)
{
    dl_iterate_phdr(look_at_all, &records);
}

/* --- The state dump -------------------------------------------------------------------------- */

/* Sessions (one bit each) and the process that have a state dump of all objects. */
static uint32_t told_sessions;
static pid_t told_process;

static int dump_object(struct dl_phdr_info *info, size_t size, void *unused)
{
    struct object object;
    (void)size, (void)unused;
    read_headers(&object, info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum);
    read_file(&object, info->dlpi_name);
    trackway(lttng_ust_statedump, bin_info, object.baddr, object.memsz, object.path,
             object.is_pic, object.build_id != NULL, object.has_debug_link);
    RECORD_DETAILS(lttng_ust_statedump, &object);
    return 0;
}

/*
 * Records all objects, if there is a session that has not seen them, or the process is another.
 * Several threads may do so at a time, then it is recorded twice, which does no harm.
 */
static ASIDE void dump_if_wanted(void)
{
    const uint32_t sessions =
        trackway_i_wanted(&trackway_event_lttng_ust_statedump_DOT_bin_info);
    const uint32_t told = __atomic_exchange_n(&told_sessions, sessions, __ATOMIC_RELAXED);
    const pid_t process = getpid();
    const pid_t before = __atomic_exchange_n(&told_process, process, __ATOMIC_RELAXED);
    if (process == before && !(sessions & ~told))
        return;
    update(0);
    if (sessions) {
        trackway(lttng_ust_statedump, start);
        dl_iterate_phdr(dump_object, NULL);
        trackway(lttng_ust_statedump, end);
    }
}

/* --- Wrapped functions ---------------------------------------------------------------------- */

typedef void *(*dlopen_function)(const char *name, int flags);
typedef void *(*dlmopen_function)(Lmid_t nsid, const char *name, int flags);
typedef int (*dlclose_function)(void *handle);

static dlopen_function next_dlopen;
static dlmopen_function next_dlmopen;
static dlclose_function next_dlclose;

static int is_on(void)
{
    return ON(lttng_ust_statedump, bin_info) || ON(lttng_ust_dl, dlopen) ||
           ON(lttng_ust_dl, dlmopen) || ON(lttng_ust_dl, dlclose) || ON(lttng_ust_lib, load) ||
           ON(lttng_ust_lib, unload);
}

static void find_all(void)
{
    next_dlopen = (dlopen_function)find_next("dlopen");
    next_dlmopen = (dlmopen_function)find_next("dlmopen");
    next_dlclose = (dlclose_function)find_next("dlclose");
}

/* libtrackway.so follows this helper in LD_PRELOAD, so its constructor has run. */
__attribute__((constructor)) static void begin(void)
{
    const int saved_errno = errno;
    find_all();
    if (is_on())
        dump_if_wanted();
    errno = saved_errno;
}

/* The dynamic section of an object, or null. */
static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info)
{
    size_t i;
    for (i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            const ElfW(Dyn) * dynamic;
            const uintptr_t address = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            memcpy(&dynamic, &address, sizeof(dynamic));
            return dynamic;
        }
    return NULL;
}

/* Whether it has an entry of this kind; of DT_FLAGS_1, with this flag. */
static int has_entry(const ElfW(Dyn) * entry, ElfW(Sxword) tag, ElfW(Xword) flag)
{
    for (; entry && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == tag && (!flag || entry->d_un.d_val & flag))
            return 1;
    return 0;
}

/* Whether an object other than the program, which is the first, has a DT_RPATH. */
static int see_rpath(struct dl_phdr_info *info, size_t size, void *is_program)
{
    (void)size;
    if (*(int *)is_program) {
        *(int *)is_program = 0;
        return 0;
    }
    return has_entry(dynamic_of(info), DT_RPATH, 0);
}

/*
 * Returns true if the result of dlopen() depends on the calling object. Then the helper must not
 * come between: it jumps to the next function, and records at the next call which objects that has
 * loaded. $ORIGIN is the calling object's folder. A name without a slash is looked up
 *
 *  -  in the calling object's DT_RUNPATH;
 *  -  else in the DT_RPATH of that object, of the object that needs it, and so on: the loader does
 *     not tell which these are, but most processes have no object with a DT_RPATH, except for the
 *     program, whose DT_RPATH applies to all objects;
 *  -  in the system's folders, unless the calling object excludes them (-z nodefaultlib).
 */
static int depends_on_caller(const char *name, void *caller)
{
    Dl_info info;
    struct link_map *map;
    int is_program = 1;
    if (!name || (strchr(name, '/') && !strchr(name, '$')))
        return 0;
    return strchr(name, '$') || !dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) ||
           has_entry(map->l_ld, DT_RUNPATH, 0) ||
           has_entry(map->l_ld, DT_FLAGS_1, DF_1_NODEFLIB) ||
           dl_iterate_phdr(see_rpath, &is_program);
}

/* Returns true if there is anything to record of a dlopen() that returned this handle. */
static int read_handle(struct object *object, void *handle)
{
    struct link_map *map;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map || !read_map(object, map))
        return 0;
    read_file(object, map->l_name);
    return 1;
}

static ASIDE void record_dlopen(void *handle, int flags)
{
    struct object object;
    if (!read_handle(&object, handle))
        return;
    trackway(lttng_ust_dl, dlopen, object.baddr, object.memsz, (uint32_t)flags, object.path,
             object.build_id != NULL, object.has_debug_link);
    RECORD_DETAILS(lttng_ust_dl, &object);
}

static ASIDE void *recorded_dlopen(dlopen_function function, const char *name, int flags)
{
    void *const handle = function(name, flags);
    if (handle) {
        const int saved_errno = errno;
        record_dlopen(handle, flags);
        update(1);
        errno = saved_errno;
    }
    return handle;
}

/* Records the objects that were loaded and unloaded since, outside of wrapped calls. */
static ASIDE void catch_up(void)
{
    const int saved_errno = errno;
    dump_if_wanted();
    update(1);
    errno = saved_errno;
}

/* Whether there has been a call that we did not come between. */
static int has_jumped;

EXPORTED void *dlopen(const char *name, int flags)
{
    if (UNLIKELY(!next_dlopen))
        find_all();
    if (is_on()) {
        catch_up();
        if (!depends_on_caller(name, __builtin_return_address(0)))
            return recorded_dlopen(next_dlopen, name, flags);
        __atomic_store_n(&has_jumped, 1, __ATOMIC_RELAXED);
    }
    return next_dlopen(name, flags); /* a jump, so that the caller is the caller */
}

static ASIDE void record_dlmopen(void *handle, Lmid_t nsid, int flags)
{
    struct object object;
    if (nsid == LM_ID_NEWLM)
        (void)dlinfo(handle, RTLD_DI_LMID, &nsid);
    if (!read_handle(&object, handle))
        return;
    trackway(lttng_ust_dl, dlmopen, object.baddr, object.memsz, (int64_t)nsid, (uint32_t)flags,
             object.path, object.build_id != NULL, object.has_debug_link);
    RECORD_DETAILS(lttng_ust_dl, &object);
}

static ASIDE void *recorded_dlmopen(dlmopen_function function, Lmid_t nsid, const char *name,
                                    int flags)
{
    void *const handle = function(nsid, name, flags);
    if (handle) {
        const int saved_errno = errno;
        record_dlmopen(handle, nsid, flags);
        update(1);
        errno = saved_errno;
    }
    return handle;
}

EXPORTED void *dlmopen(Lmid_t nsid, const char *name, int flags)
{
    if (UNLIKELY(!next_dlmopen))
        find_all();
    if (is_on()) {
        catch_up();
        if (!depends_on_caller(name, __builtin_return_address(0)))
            return recorded_dlmopen(next_dlmopen, nsid, name, flags);
        __atomic_store_n(&has_jumped, 1, __ATOMIC_RELAXED);
    }
    return next_dlmopen(nsid, name, flags);
}

static ASIDE int recorded_dlclose(dlclose_function function, void *handle)
{
    struct object object;
    struct link_map *map;
    int result, saved_errno = errno;
    catch_up();
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && read_map(&object, map))
        trackway(lttng_ust_dl, dlclose, object.baddr);
    errno = saved_errno;
    result = function(handle);
    saved_errno = errno;
    if (result == 0)
        update(1);
    errno = saved_errno;
    return result;
}

EXPORTED int dlclose(void *handle)
{
    if (UNLIKELY(!next_dlclose))
        find_all();
    if (is_on())
        return recorded_dlclose(next_dlclose, handle);
    return next_dlclose(handle);
}

/*
 * Returns true if this process has one thread: the folder of its threads has a link for itself, one
 * for its parent, and one for each thread. Returns false if the folder cannot be read.
 */
static int is_alone(void)
{
    struct stat tasks;
    return fstatat(AT_FDCWD, "/proc/self/task", &tasks, 0) == 0 && tasks.st_nlink == 3;
}

/*
 * Records the objects of a last dlopen() to which the helper had to jump. exit() itself does not
 * wait for the lock that dl_iterate_phdr() takes. So the helper must not where the wait could last
 * for ever: in a child of fork, where the thread that held the lock may be missing, and with other
 * threads, one of which may wait inside the lock for this one.
 */
__attribute__((destructor)) static void end(void)
{
    const int saved_errno = errno;
    if (__atomic_load_n(&has_jumped, __ATOMIC_RELAXED) && is_on() &&
        __atomic_load_n(&told_process, __ATOMIC_RELAXED) == getpid() && is_alone())
        catch_up();
    errno = saved_errno;
}
