/*
 * GPT-2's pre-tokenization: a text is split into pieces by this pattern, and merges happen within a
 * piece (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, and the code
 * published with it):
 *
 *   's|'t|'re|'ve|'m|'ll|'d     endings
 *   | ?\p{L}+                   letters, after at most one space
 *   | ?\p{N}+                   numbers, after at most one space
 *   | ?[^\s\p{L}\p{N}]+         other characters, after at most one space
 *   |\s+(?!\S)                  spaces, except the last one before a non-space
 *   |\s+                        spaces
 *
 * Invalid UTF-8 bytes count as other characters.
 */
#ifndef TR_TEXT_GPT2_SPLIT_H
#define TR_TEXT_GPT2_SPLIT_H

#include <stddef.h>

/* A piece is final, whatever text follows, if at least so many bytes follow it. */
#define GPT2_AHEAD 4

/* Length in bytes of the first piece of text[0 .. bytes), bytes > 0; text[bytes] is 0. At most
 * `most` bytes, plus the rest of a character. */
size_t tr_gpt2_piece(const char *text, size_t bytes, size_t most);

#endif
