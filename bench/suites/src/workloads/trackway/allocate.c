/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * ALLOCATE words|trees|pairs BATCHES SIZE: work that allocates, unaware of any tracer. Prints
 * "batch 0 NUMBER CALLS NS" for each batch: how often it called malloc and free, and its time
 *
 *     words   counts SIZE words, most of them different, in a hash table: each new one is two
 *             allocations; and frees all of it. A program that allocates a lot
 *     trees   builds, walks and frees a binary tree of 2^SIZE - 1 nodes, as the program
 *             "binary-trees" of the Computer Language Benchmarks Game does: little else
 *     pairs   SIZE times malloc, one store, free: nothing else, a bound for the cost of a call
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

struct node {
    struct node *left, *right;
};

static uint64_t calls;

/* Time on CPUs: what other processes take does not count. */
static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct node *grow(int depth)
{
    struct node *node = malloc(sizeof(*node));
    if (!node)
        abort();
    calls++;
    node->left = depth > 1 ? grow(depth - 1) : NULL;
    node->right = depth > 1 ? grow(depth - 1) : NULL;
    return node;
}

static uint64_t walk(const struct node *node)
{
    return node->left ? 1 + walk(node->left) + walk(node->right) : 1;
}

static void fell(struct node *node)
{
    if (node->left) {
        fell(node->left);
        fell(node->right);
    }
    free(node);
    calls++;
}

static void trees(int depth)
{
    struct node *tree = grow(depth);
    if (walk(tree) != (UINT64_C(1) << depth) - 1)
        abort();
    fell(tree);
}

struct word {
    struct word *next;
    char *text;
    unsigned times;
};

enum { BUCKETS = 1 << 14, LETTERS_MAX = 12 };
static struct word *buckets[BUCKETS];

/* Pseudo-random: xorshift64. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void count_word(const char *text, size_t length)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    struct word *word;
    size_t i;
    for (i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    for (word = buckets[hash % BUCKETS]; word; word = word->next)
        if (strcmp(word->text, text) == 0) {
            word->times++;
            return;
        }
    word = malloc(sizeof(*word));
    if (!word || !(word->text = malloc(length + 1)))
        abort();
    calls += 2;
    memcpy(word->text, text, length + 1);
    word->times = 1;
    word->next = buckets[hash % BUCKETS];
    buckets[hash % BUCKETS] = word;
}

static void words(long count)
{
    uint64_t state = 88172645463325252u, sum = 0;
    size_t i;
    for (long number = 0; number < count; number++) {
        char text[LETTERS_MAX + 1];
        const uint64_t random = next_random(&state);
        const size_t length = 3 + random % (LETTERS_MAX - 2);
        for (i = 0; i < length; i++)
            text[i] = (char)('a' + (random >> (4 + 4 * i)) % 16);
        text[length] = 0;
        count_word(text, length);
    }
    for (i = 0; i < BUCKETS; i++)
        while (buckets[i]) {
            struct word *word = buckets[i];
            buckets[i] = word->next;
            sum += word->times;
            free(word->text);
            free(word);
            calls += 2;
        }
    if (sum != (uint64_t)count)
        abort();
}

static void pairs(long count)
{
    long i;
    for (i = 0; i < count; i++) {
        /* Sizes that differ, all of them small. */
        volatile char *memory = malloc((size_t)(16 + (i * 40 & 255)));
        if (!memory)
            abort();
        *memory = 1;
        free((void *)memory);
        calls += 2;
    }
}

int main(int argc, char **argv)
{
    int batches, number;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 4)
        return 2;
    batches = atoi(argv[2]);
    for (number = 0; number < batches; number++) {
        uint64_t begin;
        calls = 0;
        begin = now_ns();
        if (strcmp(argv[1], "trees") == 0)
            trees(atoi(argv[3]));
        else if (strcmp(argv[1], "words") == 0)
            words(atol(argv[3]));
        else
            pairs(atol(argv[3]));
        printf("batch 0 %d %llu %llu\n", number, (unsigned long long)calls,
               (unsigned long long)(now_ns() - begin));
    }
    return 0;
}
