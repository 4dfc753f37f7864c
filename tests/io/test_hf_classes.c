/* What each class that config.json may name is read as: a table for every type of other programs.
 */
#include "bp_test.h"

#include "io/huggingface/hf_config_priv.h"
#include "models/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENCODER "ForMaskedLM " TASKS
#define TASKS   "ForSequenceClassification=classes ForTokenClassification=tags " ANSWERS
#define ANSWERS "ForQuestionAnswering=spans Model "
#define NO_ENCODER                                                                                 \
    "ForMultipleChoice! ForNextSentencePrediction! LMHeadModel! ForCausalLM! EncoderModel! "
#define SCORED "ForCausalLM Model ForSequenceClassification=classes "
#define NO_DECODER                                                                                 \
    "ForQuestionAnswering! ForMultipleChoice! DoubleHeadsModel! RewardModel! ForMaskedLM! "
#define WRITES                                                                                     \
    "ForConditionalGeneration Model ForSequenceClassification=classes ForQuestionAnswering=spans "
#define NO_WRITING NO_OTHER "EncoderModel! ForTokenClassification! "
#define NO_OTHER   "ForMaskedLM! ForCausalLM! "

/* Ends of classes' names with what they are read as: a language model where nothing is said, "!" is
 * refused. A class that begins with '+' is the whole name. */
static const struct {
    const char *type, *stem, *ends;
} CLASSES[] = {
    {"bert", "Bert", ENCODER "ForPreTraining " NO_ENCODER},
    {"roberta", "Roberta", ENCODER NO_ENCODER},
    {"xlm-roberta", "XLMRoberta", ENCODER NO_ENCODER},
    {"camembert", "Camembert", ENCODER NO_ENCODER},
    {"distilbert", "DistilBert", ENCODER NO_ENCODER},
    {"electra", "Electra", ENCODER "ForPreTraining " NO_ENCODER},
    {"deberta-v2", "DebertaV2", ENCODER NO_ENCODER},
    {"modernbert", "ModernBert", ENCODER NO_ENCODER},
    {"mpnet", "MPNet", ENCODER NO_ENCODER},
    {"gpt2", "GPT2",
     "LMHeadModel Model ForSequenceClassification=classes ForTokenClassification=tags " NO_DECODER},
    {"openai-gpt", "OpenAIGPT",
     "LMHeadModel Model ForSequenceClassification=classes ForTokenClassification! " NO_DECODER},
    {"llama", "Llama", SCORED "ForTokenClassification=tags +LLaMAForCausalLM " NO_DECODER},
    {"mistral", "Mistral", SCORED "ForTokenClassification=tags " NO_DECODER},
    {"qwen2", "Qwen2", SCORED "ForTokenClassification=tags ForRewardModel! " NO_DECODER},
    {"qwen3", "Qwen3", SCORED "ForTokenClassification=tags " NO_DECODER},
    {"gemma2", "Gemma2", SCORED "ForTokenClassification=tags " NO_DECODER},
    {"gemma3_text", "Gemma3Text",
     "+Gemma3ForCausalLM Model ForSequenceClassification=classes "
     "ForTokenClassification! " NO_DECODER},
    {"olmo2", "Olmo2", SCORED "ForTokenClassification! " NO_DECODER},
    {"smollm3", "SmolLM3", SCORED "ForTokenClassification=tags " NO_DECODER},
    {"granite", "Granite", "ForCausalLM Model ForSequenceClassification! " NO_DECODER},
    {"granitemoehybrid", "GraniteMoeHybrid",
     "ForCausalLM Model ForSequenceClassification! " NO_DECODER},
    {"bamba", "Bamba", "ForCausalLM Model ForSequenceClassification! " NO_DECODER},
    {"phi3", "Phi3", SCORED "ForTokenClassification=tags " NO_DECODER},
    {"gpt_neox", "GPTNeoX", SCORED "ForTokenClassification=tags " NO_DECODER},
    {"opt", "OPT", SCORED "ForTokenClassification! " NO_DECODER},
    {"gptj", "GPTJ", SCORED "ForTokenClassification! " NO_DECODER},
    {"bloom", "Bloom", SCORED "ForTokenClassification=tags " NO_DECODER},
    {"mixtral", "Mixtral", SCORED "ForTokenClassification=tags " NO_DECODER},
    {"olmoe", "Olmoe", "ForCausalLM Model ForSequenceClassification! " NO_DECODER},
    {"qwen3_moe", "Qwen3Moe", SCORED "ForTokenClassification=tags " NO_DECODER},
    {"mamba2", "Mamba2", "ForCausalLM Model ForSequenceClassification! " NO_DECODER},
    {"bart", "Bart", WRITES NO_WRITING},
    {"t5", "T5",
     WRITES
     "+T5WithLMHeadModel EncoderModel ForTokenClassification=tags ForMultipleChoice! " NO_OTHER},
    {"mt5", "MT5", WRITES "EncoderModel ForTokenClassification=tags " NO_OTHER},
    {"umt5", "UMT5", WRITES "EncoderModel ForTokenClassification=tags " NO_OTHER},
    {"marian", "Marian", "MTModel Model ForSequenceClassification! " NO_WRITING},
    {"mbart", "MBart", WRITES NO_WRITING},
    {"m2m_100", "M2M100", "ForConditionalGeneration Model ForSequenceClassification! " NO_WRITING},
};

/* Of the table that a class is read by: a number and classes have one class, and the last is taken.
 */
static const char *task_of(const json_t *config, const char *type)
{
    static const char *const TASKS_OF[] = {"none", "classes", "regression", "tags", "spans"};
    const char *task = TASKS_OF[0];

    for (const bp_hf_table *const *table = bp_model_huggingface_tables(); *table; table++)
        for (const bp_hf_size *size = (*table)->sizes; size->ours; size++)
            if (strcmp((*table)->model_type, type) == 0 && hf_config_names(config, *table) &&
                strcmp(size->ours, "task") == 0)
                task = TASKS_OF[strtol(size->otherwise, NULL, 10)];
    return task;
}

/* One end of a name, "ForMaskedLM" or "ForTokenClassification=tags". */
static void check_class(const char *type, const char *stem, const char *end, size_t bytes)
{
    const bp_hf_table *const *tables = bp_model_huggingface_tables();
    size_t name = strcspn(end, "=! ");
    bool whole = end[0] == '+', refused = end[name] == '!';
    json_t *config =
        json_pack("{s:s, s:[o]}", "model_type", type, "architectures",
                  json_sprintf("%s%.*s", whole ? "" : stem, (int)name - whole, end + whole));
    bp_err err = hf_check_class(config, tables, "config.json");

    if ((err != BP_OK) != refused)
        print_error("%s%.*s: %s\n", stem, (int)bytes, end,
                    err == BP_OK ? "is read" : bp_err_message());
    assert_int_equal(err != BP_OK, refused);
    if (refused) {
        assert_non_null(strstr(bp_err_message(), "huggingface.unknown_class"));
        assert_non_null(
            strstr(bp_err_message(),
                   json_string_value(json_array_get(json_object_get(config, "architectures"), 0))));
    } else {
        const char *task = end[name] == '=' ? end + name + 1 : "none";

        assert_int_equal(strlen(task_of(config, type)), end[name] == '=' ? bytes - name - 1 : 4);
        assert_memory_equal(task_of(config, type), task, strlen(task_of(config, type)));
    }
    json_decref(config);
}

static void each_class_is_read_as_what_it_is_or_refused(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof CLASSES / sizeof *CLASSES; k++)
        for (const char *end = CLASSES[k].ends; *end;) {
            size_t bytes = strcspn(end, " ");

            check_class(CLASSES[k].type, CLASSES[k].stem, end, bytes);
            end += bytes + strspn(end + bytes, " ");
        }
}

/* Of every type of other programs. */
static void the_table_has_all_types(void **state)
{
    static const char *const OURS[] = {"transformer", "rnn", "lstm", "gru", "cell"};

    (void)state;
    for (const bp_hf_table *const *table = bp_model_huggingface_tables(); *table; table++) {
        bool has = false;

        for (size_t k = 0; k < sizeof CLASSES / sizeof *CLASSES; k++)
            has = has || strcmp(CLASSES[k].type, (*table)->model_type) == 0;
        for (size_t k = 0; k < sizeof OURS / sizeof *OURS; k++)
            has = has || strcmp(OURS[k], (*table)->model_type) == 0;
        if (!has)
            print_error("%s\n", (*table)->model_type);
        assert_true(has);
    }
}

/* A model of images and text: its class says whether it has the language model's head. */
static void the_class_around_a_text_model_counts(void **state)
{
    static const struct {
        const char *class;
        bool read;
    } AROUND[] = {{"Gemma3ForConditionalGeneration", true},
                  {"LlavaForConditionalGeneration", true},
                  {"LlavaModel", true},
                  {"Gemma3ForSequenceClassification", false},
                  {"LlavaForRewardModel", false}};

    (void)state;
    for (size_t k = 0; k < sizeof AROUND / sizeof *AROUND; k++) {
        json_t *config = json_pack("{s:s, s:[s], s:{s:s}}", "model_type", "gemma3", "architectures",
                                   AROUND[k].class, "text_config", "model_type", "gemma3_text");

        assert_int_equal(hf_check_class(config, bp_model_huggingface_tables(), "config.json") ==
                             BP_OK,
                         AROUND[k].read);
        json_decref(config);
    }
}

/* Refused by name, written as the context, or of parts that are left out: heads of trainings, and
 * ELECTRA's other half. */
static bool is_known(const bp_hf_table *table, const char *name)
{
    static const char NAMES[] = " softmaxes head_activation attention_activation positions pooler "
                                "boundary part generator_layers generator_width generator_heads "
                                "generator_inner ";
    char word[64];

    (void)snprintf(word, sizeof word, " %s ", name);
    return bp_hf_has_size(table, name) || strstr(NAMES, word);
}

/* What an export does not know of it would leave out, and write another model. */
static void each_size_of_a_model_is_written_or_refused(void **state)
{
    int lost = 0;

    (void)state;
    for (const bp_hf_table *const *table = bp_model_huggingface_tables(); *table; table++) {
        const bp_model_size *size = bp_model_family_find((*table)->kind)->sizes;
        const bp_hf_setting *one = (*table)->settings;

        for (; size->name; size++)
            if (!is_known(*table, size->stored ? size->stored : size->name)) {
                print_message("%s loses %s\n", (*table)->architecture, size->name);
                lost++;
            }
        for (; one && one->key; one++) /* which is written whatever the size is */
            for (const bp_hf_size *theirs = (*table)->sizes; theirs->ours; theirs++)
                if (!one->only_if && theirs->theirs && strcmp(theirs->theirs, one->key) == 0) {
                    print_message("%s writes %s twice\n", (*table)->architecture, one->key);
                    lost++;
                }
    }
    assert_int_equal(lost, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_size_of_a_model_is_written_or_refused),
        cmocka_unit_test(each_class_is_read_as_what_it_is_or_refused),
        cmocka_unit_test(the_table_has_all_types),
        cmocka_unit_test(the_class_around_a_text_model_counts),
    };
    return BP_TEST_RUN(tests);
}
