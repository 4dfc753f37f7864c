/* What other programs call our keys: the words for one meaning in a row, in sections by meaning. A
 * row is used where all of its keys are known; the first such row of a word wins. A word with a
 * section matches only in that section; a word without one matches with any section or without.
 */
#include "base/config/config_priv.h"

const config_word config_words[] = {
    /* the optimizer */
    {"lr learning_rate max_lr max_learning_rate peak_lr base_lr", "optimizer.lr", NULL},
    {"min_lr min_learning_rate lr_min eta_min", "optimizer.min_lr", "a share of optimizer.lr"},
    {"optimizer optim optimizer_type", "optimizer.kind", NULL},
    {"lr_scheduler lr_scheduler_type lr_schedule lr_decay_style scheduler", "optimizer.decay",
     NULL},
    {"warmup_steps num_warmup_steps warmup_iters lr_warmup_iters warmup_ratio", "optimizer.warmup",
     "in steps"},
    {"adam_beta1", "optimizer.beta1", NULL},
    {"adam_beta2", "optimizer.beta2", NULL},
    {"adam_epsilon adam_eps eps", "optimizer.epsilon", NULL},
    {"wd l2", "optimizer.weight_decay", NULL},
    {"max_grad_norm grad_clip clip_grad clip_grad_norm gradient_clip "
     "gradient_clip_val gradient_clipping max_norm",
     "optimizer.clip", NULL},

    /* steps, batches, epochs */
    {"max_steps max_update num_steps total_steps train_steps max_iters train_iters "
     "num_iterations iterations iters",
     "train.steps", NULL},
    {"epochs epoch num_epochs n_epochs max_epochs num_train_epochs", "train.epochs", NULL},
    {"batch_size bsz global_batch_size train_batch_size total_batch_size", "train.batch",
     "sequences a step over all ranks"},
    {"per_device_train_batch_size per_gpu_train_batch_size", "mesh.micro_batch train.batch",
     "sequences at once on a rank, and a step over all ranks"},
    {"micro_batch_size device_batch_size", "mesh.micro_batch", NULL},
    {"gradient_accumulation_steps gradient_accumulation accumulation_steps "
     "accumulate_grad_batches",
     "train.batch mesh.micro_batch",
     "a rank adds up train.batch / (data ranks x mesh.micro_batch) gradients a step"},
    {"gradient_checkpointing activation_checkpointing checkpoint_activations "
     "recompute_activations",
     "train.recompute", NULL},
    {"patience early_stopping early_stopping_patience", "train.patience", NULL},
    {"tensorboard report_to", "train.tensorboard", NULL},

    /* the model */
    {"hidden_size hidden_dim n_embd n_embed d_model model_dim embed_dim "
     "embedding_dim embedding_size emb_size dim",
     "model.width", NULL},
    {"n_layer n_layers num_layers num_hidden_layers num_blocks depth", "model.layers", NULL},
    {"n_head n_heads num_heads num_attention_heads attention_heads", "model.heads", NULL},
    {"score.max_length score.max_seq_length score.block_size score.seq_len", "score.context", NULL},
    {"n_positions n_ctx ctx_len context_length context_size max_length "
     "max_seq_length max_seq_len max_position_embeddings block_size seq_len "
     "seq_length seqlen sequence_length",
     "model.context", NULL},
    {"dropout_rate dropout_prob hidden_dropout_prob hidden_dropout attention_dropout "
     "resid_pdrop embd_pdrop attn_pdrop",
     "model.dropout", NULL},
    {"n_inner intermediate_size ffn_dim d_ff", "model.inner", NULL},
    {"n_inner intermediate_size ffn_dim d_ff", NULL,
     "the MLP's inner width is four times model.width"},
    {"vocab_size vocabulary_size n_vocab", NULL,
     "no key sets it: it is the corpus's, from bagpipe-data tokenizer --size"},
    {"init_from pretrained pretrained_model", "model.init", NULL},

    /* n-gram models, uncertainty */
    {"ngram.n ngram.size ngram.degree", "ngram.order", NULL},
    {"ngram.discount ngram.kind", "ngram.smoothing", NULL},
    {"uncertainty.alpha uncertainty.conformal_alpha conformal_alpha", "uncertainty.coverage",
     "1 - alpha"},

    /* what is generated */
    {"lenpen length_pen len_penalty", "generate.length_penalty", NULL},
    {"max_new_tokens max_gen_len", "generate.tokens", "new tokens of a text"},
    {"num_beams n_beams beam_size beam_width beam num_beam", "generate.beams",
     "with generate.strategy=beam"},
    {"num_return_sequences num_samples n_samples nbest", "generate.samples",
     "with generate.strategy=sample; a search writes generate.beams texts"},
    {"do_sample sampling", "generate.strategy", "sample"},
    {"no_repeat_ngram_size", "generate.no_repeat_ngram", NULL},

    {"score.entropy", NULL,
     "bagpipe explain with explain.methods=lens has the entropy of each next token"},

    /* what is read */
    {"score.data score.dataset score.file score.test_file", "score.corpus", NULL},
    {"score.checkpoint score.model_name_or_path score.init", "score.model", NULL},
    {"model_name_or_path", "model.init", NULL},
    {"data dataset dataset_name data_path data_dir train_data train_dataset "
     "train_file training_data training_file",
     "corpus.train", NULL},
    {"validation validation_data validation_file valid_data valid_file val_data "
     "val_file eval_data eval_dataset eval_file dev_data dev_file",
     "corpus.valid", NULL},
    {"dataset_weights mixture_weights sampling_weights", "corpus.weights", NULL},
    {"shuffle", NULL, "windows are always shuffled, in an order that run.seed sets"},
    {"tokenizer tokenizer_file tokenizer_name", "tokenizer.path", NULL},
    {"num_workers dataloader_num_workers", NULL,
     "there are none: each rank reads ahead with a thread of its own"},

    /* what is written */
    {"output output_dir out_dir outdir save_dir work_dir log_dir logdir logging_dir "
     "checkpoint_dir",
     "run.dir", NULL},
    {"save_steps save_every save_interval save_freq checkpoint_interval", "checkpoint.every", NULL},
    {"save_total_limit max_checkpoints", "checkpoint.keep", NULL},
    {"eval_steps eval_every eval_interval val_interval val_check_interval "
     "validation_interval",
     "train.valid_every", NULL},
    {"logging_steps log_steps log_interval print_every", "train.log_every", NULL},
    {"resume resume_from resume_from_checkpoint", NULL,
     "no key asks for it: the same command again goes on"},

    /* the machine */
    {"random_seed random_state manual_seed", "run.seed", NULL},
    {"dtype torch_dtype", "math.precision", NULL},
    {"bf16 fp16 fp32 half amp mixed_precision", "math.precision", "bf16 or f32"},
    {"n_threads num_threads nthreads cpus", "math.threads", NULL},
    {"device gpu gpus cuda", NULL, "there is nothing to choose: it runs only on processors"},
    {"tp tp_size tensor_parallel tensor_parallel_size tensor_model_parallel_size", "mesh.tensor",
     NULL},
    {"pp pp_size pipeline_parallel pipeline_parallel_size "
     "pipeline_model_parallel_size",
     "mesh.pipeline", NULL},
    {"dp dp_size data_parallel data_parallel_size", "mesh.data", NULL},
    {"num_members n_members num_models n_models ensemble_size", "ensemble.members", NULL},
    {"memory_limit max_memory", "run.memory", NULL},
    {NULL, NULL, NULL}};
