/* A pipeline as a whole: its end, and where it lets documents be cut. */
#include "text/pipeline/pipeline.h"
#include "base/mem.h"

void bp_pipeline_free(bp_pipeline **pipeline)
{
    bp_pipeline *p = *pipeline;

    if (!p)
        return;
    bp_normalizer_clear(&p->normalizer);
    bp_pretokenizer_clear(&p->pre);
    bp_added_clear(&p->added);
    bp_decoder_clear(&p->decoder);
    bp_pieces_clear(&p->pieces);
    bp_free(p->source);
    bp_free(p);
    *pipeline = NULL;
}

/* ---- cuts ---- */

/* Normalizers that look at no character beyond a White_Space run. */
static bool are_local(const bp_normalizer *normalizer)
{
    for (int k = 0; k < normalizer->count; k++)
        switch (normalizer->steps[k].kind) {
        case BP_NORM_FORM:
        case BP_NORM_LOWERCASE:
        case BP_NORM_ACCENTS:
        case BP_NORM_BERT:
        case BP_NORM_CHARSMAP:
            break;
        default:
            return false;
        }
    return true;
}

/* Steps after the first that treat the first piece of a document otherwise. */
static bool depend_on_place(const bp_pretokenizer *pre)
{
    for (int k = 0; k < pre->count; k++)
        if (pre->steps[k].kind == BP_PRE_PREFIX ||
            (pre->steps[k].kind == BP_PRE_METASPACE && pre->steps[k].scheme == BP_PREPEND_FIRST))
            return true;
    return false;
}

bp_cut bp_pipeline_cut(const bp_pipeline *pipeline)
{
    const bp_pretokenizer *pre = &pipeline->pre;

    if (pipeline->added.raw.any_plain || pipeline->added.normalized.any_plain ||
        !are_local(&pipeline->normalizer) || pre->count == 0 || depend_on_place(pre))
        return BP_CUT_NEVER;
    /* a normalizer may take other White_Space away (control characters), but no space */
    switch (pre->steps[0].kind) {
    case BP_PRE_SPACE:
    case BP_PRE_BERT:
        return pipeline->normalizer.count == 0 ? BP_CUT_SPACE : BP_CUT_BLANK;
    case BP_PRE_GPT2:
        return pipeline->normalizer.count == 0 ? BP_CUT_PATTERN : BP_CUT_BLANK;
    case BP_PRE_LLAMA:
        return BP_CUT_BLANK;
    default:
        return BP_CUT_NEVER;
    }
}
