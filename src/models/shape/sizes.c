/* Sizes of a model: their values, names and texts, and figures derived from them. No file here
 * knows the list of families. */
#include "models/shape/sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double size_value(const bp_model_shape *shape, const bp_model_size *size)
{
    const char *at = (const char *)shape + size->at;

    if (size->type == BP_SIZE_REAL || size->type == BP_SIZE_REALS) /* its first */
        return *(const double *)(const void *)at;
    int64_t number = *(const int64_t *)(const void *)at;
    return size->inverse ? number == 0 : (double)number;
}

void size_set(bp_model_shape *shape, const bp_model_size *size, double value)
{
    char *at = (char *)shape + size->at;

    if (size->type == BP_SIZE_REAL || size->type == BP_SIZE_REALS)
        *(double *)(void *)at = value;
    else
        *(int64_t *)(void *)at = size->inverse ? value == 0 : (int64_t)value;
}

void shape_fill_defaults(bp_model_shape *shape)
{
    if (shape->family->fill_defaults)
        shape->family->fill_defaults(shape);
    shape->softmaxes = shape->softmaxes > 0 ? shape->softmaxes : 1;
    for (const bp_model_size *size = shape->family->sizes; size->name; size++)
        if (size->at == BP_SIZE_AT(positions))
            shape->positions = bp_model_positions(shape);
}

const char *size_stored_name(const bp_model_size *size)
{
    return size->stored ? size->stored : size->name;
}

bool size_is_given(const bp_model_shape *shape, const bp_model_size *size)
{
    bool number =
        size->type == BP_SIZE_COUNT || size->type == BP_SIZE_REAL || size->type == BP_SIZE_REALS;
    bp_model_shape plain = *shape;

    if (size->optional && number && size_value(shape, size) == 0)
        return false;
    if (!size->quiet)
        return true;
    size_set(&plain, size, size->inverse);
    shape_fill_defaults(&plain);
    return size_value(&plain, size) != size_value(shape, size);
}

bool size_read_reals(double reals[BP_MODEL_REALS], const char *text)
{
    int count = 0;

    memset(reals, 0, BP_MODEL_REALS * sizeof *reals);
    for (const char *at = text; *at != '\0' || count == 0; count++) {
        char *end;
        double real = strtod(at, &end);

        if (end == at || !(real > 0 && real < 1e15) || count == BP_MODEL_REALS)
            return false;
        reals[count] = real;
        at = end + strspn(end, ", ");
        if (at == end && *at != '\0')
            return false;
    }
    return true;
}

double *size_reals(const bp_model_shape *shape, const bp_model_size *size)
{
    return (double *)(void *)((char *)(uintptr_t)shape + size->at);
}

void size_write_reals(char text[TEXT_BYTES], const double reals[BP_MODEL_REALS])
{
    size_t used = 0;

    text[0] = '\0';
    for (int k = 0; k < BP_MODEL_REALS && reals[k] > 0; k++)
        used +=
            (size_t)snprintf(text + used, TEXT_BYTES - used, "%s%.17g", k > 0 ? "," : "", reals[k]);
}

bool size_read_pairs(int64_t pairs[BP_MODEL_PAIRS], const bp_model_size *size, const char *text)
{
    return bp_pairs_read(pairs, BP_MODEL_PAIRS, text, size->words);
}

const int64_t *size_pairs(const bp_model_shape *shape, const bp_model_size *size)
{
    return (const int64_t *)(const void *)((const char *)shape + size->at);
}

void size_set_pairs(bp_model_shape *shape, const bp_model_size *size, const int64_t *pairs)
{
    memcpy((char *)shape + size->at, pairs, BP_MODEL_PAIRS * sizeof *pairs);
}

void size_write_pairs(char text[TEXT_BYTES], const bp_model_size *size,
                      const int64_t pairs[BP_MODEL_PAIRS])
{
    bp_pairs_write(text, TEXT_BYTES, pairs, BP_MODEL_PAIRS, size->words);
}

const char *family_section(const bp_model_family *family)
{
    return family->section ? family->section : "model";
}

void size_key(char key[KEY_BYTES], const bp_model_family *family, const bp_model_size *size)
{
    (void)snprintf(key, KEY_BYTES, "%s.%s", size->section ? size->section : family_section(family),
                   size->name);
}

int size_number(const bp_model_size *size, const char *word)
{
    return bp_word_number(size->words, word, strlen(word));
}

void size_set_text(char text[TEXT_BYTES], const bp_model_size *size, double value)
{
    size_t bytes;

    if (size->type == BP_SIZE_FLAG) {
        (void)snprintf(text, TEXT_BYTES, "%s", value != 0 ? "yes" : "no");
    } else if (size->type == BP_SIZE_CHOICE) {
        const char *word = bp_word_at(size->words, (int)value, &bytes);

        (void)snprintf(text, TEXT_BYTES, "%.*s", (int)bytes, word);
    } else {
        (void)snprintf(text, TEXT_BYTES, "%.17g", value);
    }
}

void size_write(char text[TEXT_BYTES], const bp_model_shape *shape, const bp_model_size *size)
{
    if (size->type == BP_SIZE_PAIRS)
        size_write_pairs(text, size, size_pairs(shape, size));
    else if (size->type == BP_SIZE_REALS)
        size_write_reals(text, size_reals(shape, size));
    else
        size_set_text(text, size, size_value(shape, size));
}

bool bp_model_shape_is_whole(const bp_model_shape *shape)
{
    if (!shape->family)
        return false;
    for (const bp_model_size *size = shape->family->sizes; size->name; size++)
        if (size_value(shape, size) == 0 && !size->optional)
            return false;
    return true;
}

int64_t bp_model_state_width(const bp_model_shape *shape)
{
    return shape->family->state_width ? shape->family->state_width(shape) : shape->width;
}

bool bp_model_may_read(const bp_model_shape *shape, int64_t inputs)
{
    return shape->family->any_context || inputs <= bp_model_positions(shape);
}

int64_t bp_model_most_inputs(const bp_model_shape *shape)
{
    return shape->family->unlimited && !bp_task_has_head(&shape->task) ? BP_MODEL_UNLIMITED
                                                                       : shape->context;
}

/* Its layers are those of Transformers: only these take adapters. */
bool shape_has_adapters(const bp_model_family *family)
{
    return (bp_family_has_backbone(family) && !family->unlimited) || family->source;
}
