/* generate.*: the keys, and the rule that they define. */
#include "infer/generate/generator.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "infer/generate/generate.h"

#include <inttypes.h>
#include <string.h>

#define AT(field) BP_AT(bp_generate_keys, field)

const bp_option bp_generate_options[] = {
    {BP_STRING_KEY("generate.model", NULL),
     .help = "CHECKPOINT (a step, imported or run folder, RUN/checkpoints/best), or an ensemble",
     .required = true, .at = AT(model)},
    {BP_STRING_KEY("generate.prompts", NULL),
     .help = "a file: a prompt a line, or JSONL with \"prompt\" (text) or \"tokens\" (ids)",
     .required = true, .at = AT(prompts)},
    {BP_STRING_KEY("generate.template", NULL),
     .help = "a file of text: {NAME} in it is the field NAME of a JSONL prompt; {{ is a brace",
     .at = AT(template_path)},
    {BP_STRING_KEY("generate.references", NULL),
     .help = "a file of what should be written, a line a prompt: summary and page have the BLEU "
             "and chrF of the first text of each prompt",
     .at = AT(references)},
    {BP_CHOICE_KEY("generate.prefix", "auto", "auto|bos|eod|none"),
     .help =
         "what is put before a prompt: the model's beginning-of-text token, the end-of-document "
         "token, nothing; auto: before texts what the model's tokenizer puts there",
     .at = AT(prefix)},
    {BP_BOOL_KEY("generate.cut", "no"),
     .help = "of encoder-decoders: a source that is longer than the context loses its last tokens; "
             "else nothing is written for it",
     .at = AT(cut)},
    {BP_CHOICE_KEY("generate.strategy", "greedy", "greedy|sample|beam|fill"),
     .help = "the best token, a drawn one, or beam search; fill: of masked models, the masks of a "
             "prompt, or masks after it, in rounds",
     .at = AT(strategy)},
    {BP_INT_KEY("generate.tokens", "64", 1, 1e6), .unit = "tokens",
     .help = "the most new tokens of a text", .at = AT(tokens)},
    {BP_INT_KEY("generate.rounds", "10", 1, 1e6),
     .help = "of strategy fill: passes over a text, each of which fills in the most probable masks",
     .at = AT(rounds)},
    {BP_BOOL_KEY("generate.remask", "no"),
     .help = "of strategy fill: each round fills in all masks, and the least probable tokens are "
             "masked again for the next one, fewer each time",
     .at = AT(remask)},
    {BP_INT_KEY("generate.samples", "1", 1, 4096), .help = "texts a prompt; of beams the best ones",
     .at = AT(samples)},
    {BP_STRING_KEY("generate.entails", NULL),
     .help = "CHECKPOINT of a classifier of pairs, fine-tuned to find entailment: the texts of a "
             "prompt are grouped by what they mean",
     .at = AT(entails)},
    {BP_BOOL_KEY("generate.entails_prompt", "yes"),
     .help = "of generate.entails: the prompt goes before both texts", .at = AT(entails_prompt)},
    {BP_REAL_KEY("generate.temperature", "1", 0, 1000),
     .help = "of strategy sample: logits are divided by it; 0: greedy", .at = AT(temperature)},
    {BP_INT_KEY("generate.top_k", "0", 0, 1e9),
     .help = "of strategy sample: only this many of the best tokens; 0: all", .at = AT(top_k)},
    {BP_REAL_KEY("generate.top_p", "1", 0, 1),
     .help = "of strategy sample: only the fewest best tokens that have this much probability",
     .at = AT(top_p)},
    {BP_REAL_KEY("generate.repetition_penalty", "1", 0.001, 1000),
     .help = "divides the logit of a token of prompt or output (multiplies a negative one)",
     .at = AT(repetition_penalty)},
    {BP_REAL_KEY("generate.presence_penalty", "0", -1000, 1000),
     .help = "taken off the logit of a token that is in the output", .at = AT(presence_penalty)},
    {BP_REAL_KEY("generate.frequency_penalty", "0", -1000, 1000),
     .help = "taken off for each time that it is in the output", .at = AT(frequency_penalty)},
    {BP_INT_KEY("generate.no_repeat_ngram", "0", 0, 1e6), .unit = "tokens",
     .help = "no run of this many tokens twice in prompt and output; 0: any",
     .at = AT(no_repeat_ngram)},
    {BP_INT_KEY("generate.beams", "4", 1, 4096),
     .help = "of strategy beam: sequences that go on at each step", .at = AT(beams)},
    {BP_REAL_KEY("generate.length_penalty", "1", -100, 100),
     .help = "of strategy beam: texts are ranked by log-probability / tokens^this",
     .at = AT(length_penalty)},
    {BP_STRING_KEY("generate.stop", NULL),
     .help = "texts that end a text, parted by commas; \\n \\t \\r \\\\ \\, \\xNN as in C",
     .at = AT(stop)},
    {BP_INT_KEY("generate.end", NULL, -1, 1e9),
     .help = "id of the token that ends a text; the model's end of document, and other ends that "
             "its files name, if not given; -1: none",
     .at = AT(end)},
    {BP_STRING_KEY("generate.first", "auto"),
     .help = "the token that a text begins with, by its name or id; auto: what the model's files "
             "name (forced_bos_token_id); none",
     .at = AT(first)},
    {BP_STRING_KEY("generate.last", "auto"),
     .help = "the token that ends a text of generate.tokens tokens, by its name or id; auto: what "
             "the model's files name (forced_eos_token_id); none",
     .at = AT(last)},
    {BP_STRING_KEY("generate.language", NULL),
     .help = "of encoder-decoders: the language to write, by its tag (fra_Latn, fr_XX) or what "
             "that encloses (fr of __fr__ and of >>fr<<)",
     .at = AT(language)},
    {BP_STRING_KEY("generate.source_language", NULL),
     .help = "of encoder-decoders: the language of sources, whose tag is put where the tokenizer "
             "puts one",
     .at = AT(source_language)},
    {BP_INT_KEY("generate.batch", "32", 1, 65536),
     .help = "sequences side by side on a model copy: keys and values of each are kept",
     .at = AT(batch)},
    {.key = NULL}};

static bool is_beam(const bp_generate_keys *keys)
{
    return strcmp(keys->strategy, "beam") == 0;
}

static bool fills(const bp_generate_keys *keys)
{
    return strcmp(keys->strategy, "fill") == 0;
}

static bool draws(const bp_generate_keys *keys)
{
    return strcmp(keys->strategy, "sample") == 0 && keys->temperature > 0;
}

void bp_generate_check(bp_config *config)
{
    const bp_generate_keys *keys = bp_generate_keys_of(config);
    bp_stops stops = {0};

    if (is_beam(keys) && keys->samples > keys->beams)
        bp_config_fault(config, "generate.too_many_samples",
                        "generate.samples = %" PRId64 " is more than generate.beams = %" PRId64
                        ": at generate.samples; use %" PRId64 " or less, or more beams",
                        keys->samples, keys->beams, keys->beams);
    if (keys->language && bp_config_is_given(config, "generate.first"))
        bp_config_fault(config, "generate.two_firsts",
                        "generate.language = %s and generate.first = %s both say what a text "
                        "begins with: at generate.first; leave it out",
                        keys->language, keys->first);
    if (keys->entails && keys->samples < 2)
        bp_config_fault(config, "generate.too_few_samples",
                        "generate.entails groups the texts of a prompt, and generate.samples = "
                        "%" PRId64 ": at generate.samples; use 2 or more",
                        keys->samples);
    if (keys->entails && !draws(keys))
        bp_config_fault(config, "generate.not_drawn",
                        "generate.entails needs drawn texts, and there are none with "
                        "generate.strategy = %s and generate.temperature = %g: at "
                        "generate.entails; use generate.strategy=sample and a "
                        "generate.temperature above 0",
                        keys->strategy, keys->temperature);
    if (keys->stop && bp_stops_read(&stops, keys->stop) != BP_OK)
        bp_config_fault_err(config);
    bp_stops_clear(&stops);
}

void bp_generate_warn(const bp_config *config)
{
    static const char *const OF_SAMPLE[] = {"generate.temperature", "generate.top_k",
                                            "generate.top_p"};
    static const char *const OF_FILL[] = {"generate.rounds", "generate.remask"};
    static const char *const OF_BEAM[] = {"generate.beams", "generate.length_penalty"};
    static const char *const OF_STEPS[] = {"generate.samples",
                                           "generate.repetition_penalty",
                                           "generate.presence_penalty",
                                           "generate.frequency_penalty",
                                           "generate.no_repeat_ngram",
                                           "generate.stop",
                                           "generate.end",
                                           "generate.first",
                                           "generate.last"};
    const bp_generate_keys *keys = bp_generate_keys_of(config);

    for (size_t k = 0; k < sizeof OF_STEPS / sizeof OF_STEPS[0]; k++)
        if (fills(keys) && bp_config_is_given(config, OF_STEPS[k]))
            BP_WARN("config.unused_key",
                    "%s has no effect with generate.strategy=fill; leave it out", OF_STEPS[k]);
    for (size_t k = 0; k < sizeof OF_FILL / sizeof OF_FILL[0]; k++)
        if (!fills(keys) && bp_config_is_given(config, OF_FILL[k]))
            BP_WARN("config.unused_key",
                    "%s has no effect with generate.strategy=%s; use generate.strategy=fill",
                    OF_FILL[k], keys->strategy);
    for (size_t k = 0; k < sizeof OF_SAMPLE / sizeof OF_SAMPLE[0]; k++)
        if (strcmp(keys->strategy, "sample") != 0 && bp_config_is_given(config, OF_SAMPLE[k]))
            BP_WARN("config.unused_key",
                    "%s has no effect with generate.strategy=%s; use generate.strategy=sample",
                    OF_SAMPLE[k], keys->strategy);
    for (size_t k = 0; k < sizeof OF_BEAM / sizeof OF_BEAM[0]; k++)
        if (!is_beam(keys) && bp_config_is_given(config, OF_BEAM[k]))
            BP_WARN("config.unused_key",
                    "%s has no effect with generate.strategy=%s; use generate.strategy=beam",
                    OF_BEAM[k], keys->strategy);
}

bp_search_spec generator_rule(const bp_config *config, const bp_model_info *model)
{
    const bp_generate_keys *keys = bp_generate_keys_of(config);
    bool given = bp_config_is_set(config, "generate.end");

    return (bp_search_spec){.choice = {.vocab_size = model->vocab_size,
                                       .samples = draws(keys),
                                       .temperature = keys->temperature,
                                       .top_k = keys->top_k,
                                       .top_p = keys->top_p,
                                       .repetition_penalty = keys->repetition_penalty,
                                       .presence_penalty = keys->presence_penalty,
                                       .frequency_penalty = keys->frequency_penalty,
                                       .no_repeat_ngram = keys->no_repeat_ngram,
                                       .seed = (uint64_t)bp_run_keys_of(config)->seed},
                            .beams = is_beam(keys) ? keys->beams : 0,
                            .texts = fills(keys) ? 1 : keys->samples,
                            .length_penalty = keys->length_penalty,
                            .end = given ? keys->end : model->eod_id,
                            .ends = given ? (bp_ends){0} : model->ends};
}

int64_t generator_first(const bp_config *config, const bp_model_info *model)
{
    const char *prefix = bp_generate_keys_of(config)->prefix;

    if (model->masks || model->reads_source || strcmp(prefix, "none") == 0)
        return -1;
    if (strcmp(prefix, "auto") == 0)
        return bp_model_first(model);
    return strcmp(prefix, "bos") == 0 ? bp_model_bos(model) : model->eod_id;
}

bp_err generator_check_rule(const bp_config *config, const bp_model_info *model)
{
    const bp_generate_keys *keys = bp_generate_keys_of(config);

    if (is_beam(keys) && keys->beams > model->vocab_size)
        return BP_FAIL(BP_ERR_CONFIG, "generate.too_many_beams",
                       "generate.beams = %" PRId64 " is more than the %" PRId64
                       " tokens of the model's vocabulary: at generate.beams; use %" PRId64
                       " or less",
                       keys->beams, model->vocab_size, model->vocab_size);
    if (bp_config_is_set(config, "generate.end") && keys->end >= model->vocab_size)
        return BP_FAIL(BP_ERR_CONFIG, "generate.bad_end",
                       "generate.end = %" PRId64 " is not an id of the model's %" PRId64
                       " tokens: at generate.end; use one from -1 to %" PRId64,
                       keys->end, model->vocab_size, model->vocab_size - 1);
    return BP_OK;
}
