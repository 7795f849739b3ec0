// Builder: what a model uses to emit its forward pass. Every call appends one op and returns the buffer
// that the op writes. Shapes follow from the operands and are checked at once. A model knows nothing
// about gradients, memory, ranks and devices.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "runtime/core/fine_tuning/fine_tuning.h"
#include "runtime/core/fine_tuning/objective.h"
#include "runtime/ir/program.h"

namespace dstrain {

// The choices that shape a forward pass: its dtype, its sizes, and whether it is for training.
struct ForwardOptions {
  DType dtype = DType::f32;
  int64_t batch = 1;      // samples of a micro-batch (B)
  int64_t seq_len = 0;    // tokens of a sample; 0: the model's context
  bool training = true;   // dropout on; the loss comes with its gradient
  bool with_loss = true;  // false: stop at the logits (decoding)
  bool documents =
      false;  // samples hold several documents, each with positions and attention of its own
  bool padding = false;      // samples may end with padding
  int64_t row_multiple = 1;  // rows of a vocabulary's weights are padded to a multiple of this
  // What all losses of the model have (CrossEntropyAttrs).
  float label_smoothing = 0, z_loss = 0;
  // Models with experts have by these: how much a step changes the biases of choices, and the weight of the loss of routers.
  float bias_update = 0, router_z_loss = 0;
  Objective objective{};  // a sample has as many rows of tokens as it says
  bool checked =
      true;  // false: for shapes alone, whose numbers of elements may not fit into 63 bits

  // Returns whether a program has the model's inputs of a role.
  bool has(InputRole role) const;
  // Returns whether the loss compares with a teacher: a validation does not.
  bool learns_from_teacher() const { return training && with_loss && objective.has_teacher(); }
};

// Whether training changes a parameter. What is frozen has its initial values, or those of --init_weights, all the time.
enum class Trainable : uint8_t { yes, no };

// The sizes and choices of attention over queries, keys and values that are tensors of their own.
struct AttentionHeads {
  int64_t heads = 0, kv_heads = 0;  // of queries; of keys and values, a divisor of it
  int64_t seq_len = 0;
  double dropout = 0;  // probability, of the weights
  int64_t window = 0;  // query i sees keys i - window + 1 to i; 0: all keys to i
  double scale = 0;    // of the scores, above 0; 0: 1 / sqrt(head size)
  double softcap = 0;  // above 0: scaled scores s become softcap * tanh(s / softcap)
  bool causal = true;  // false: each query sees all keys of its sample
};

// `documents` of an operation is what documents() returns; kNone: each sample is one document.
class Builder {
 public:
  Builder(Program& program, const ForwardOptions& options);

  const ForwardOptions& options() const { return options_; }
  const Program& program() const { return program_; }
  // Returns the tokens of a sample, for a model with this context.
  int64_t seq_len(int64_t context) const {
    return options_.seq_len > 0 ? options_.seq_len : context;
  }

  // From now on parameters are frozen, and products have adapters, as `tuning` says.
  void fine_tune(const FineTuning& tuning) { tuning_ = tuning; }

  // Starts a layer that has no number: parameters declared from now on form one unit, and instructions are printed
  // under `name`. `first_sublayer` is the name of its first sublayer, if sublayer() will begin others.
  void unit(const std::string& name, const std::string& first_sublayer = "");
  // The same for one of the layers that the family's key of layers counts. Its name, which is returned, is
  // "STACK.NUMBER"; recompute, pipelines and counts ask for its number alone.
  std::string layer(const std::string& stack, int64_t number,
                    const std::string& first_sublayer = "");
  // Starts the next sublayer of the layer: a pipeline may be cut here. Throws InternalError if the layer's first
  // sublayer has no name.
  void sublayer(const std::string& name);
  // Returns a parameter of the current unit. A name that was declared before returns the same parameter
  // (a tied use) and must have the same shape.
  BufferId parameter(const std::string& name, Shape shape, Init init, float scale = 0,
                     Trainable trainable = Trainable::yes);

  // The same for weights with a row for each token of the vocabulary. In memory they have more rows, up to a multiple
  // of options().row_multiple, which nothing outside the plan sees: their values and their gradients stay 0.
  BufferId vocabulary(const std::string& name, Shape shape, Init init, float scale = 0,
                      Trainable trainable = Trainable::yes);

  // Declares an input of every micro-batch, with the shape of a sample, as the model's family has it; where a sample has
  // several rows of tokens, that of a row. Returns (B, sample), which are floats of the run's dtype, or i32. A name that was declared before returns the same input, for
  // the current layer to read, and must come with the same role, dtype and shape. Throws InternalError if the role has
  // another dtype, or another input and is not `array`.
  BufferId input(const std::string& name, InputRole role, DType dtype, const Shape& sample);
  // Declares the input `documents` of samples of `seq_len` tokens, for the current layer to read, as input() does. Returns
  // kNone if the options have no documents.
  BufferId documents(int64_t seq_len);
  // Returns state of the model that is no parameter (RegisteredBuffer), with zeros or ones at the beginning. It is f32;
  // an operation reads it through cast(). In a pipeline, the sublayer that declares it alone may use it.
  BufferId registered_buffer(const std::string& name, Shape shape, Init init);
  // Returns values that never change, f32 or i32: `data` has all elements, which are copied. A name that was declared before
  // with these values returns the same buffer.
  BufferId constant(const std::string& name, const Shape& shape, DType dtype, const void* data);
  // How a registered buffer changes: buffer = keep * buffer + share * sum.
  struct BufferUpdate {
    float keep = 1, share = 1;
    bool per_sample =
        false;  // of the sum over the samples of the global batch, divided by their number
    bool towards_mean =
        false;  // of 1 where an element's sum is below the mean of all, of -1 where it is above
  };
  // Lets every step change a registered buffer, at its end, by the sum of `value` over the step's micro-batches and
  // ranks. `value`: f32, computed by this sublayer, with as many elements. Does nothing unless the options are for
  // training; column_sums() and the like are best left out then, too.
  void update_buffer(BufferId buffer, BufferId value, BufferUpdate update);

  // Returns x in the run's dtype, which may be x itself.
  BufferId cast(BufferId x);
  // Returns the sums of the columns of x (R,N) in f32 (N). They have no gradient.
  BufferId column_sums(BufferId x);
  // `documents` count where there is a `position`.
  BufferId embed(BufferId ids, BufferId token, BufferId position, int64_t seq_len,
                 BufferId documents = kNone);
  BufferId layer_norm(BufferId x, BufferId weight, BufferId bias, float eps);
  // Normalises each column of rows x (R,C), with a weight and a bias (C). Returns y (R,C), and the columns' mean and variance.
  struct BatchNormed {
    BufferId y = kNone, mean = kNone, variance = kNone;
  };
  BatchNormed batch_norm(BufferId x, BufferId weight, BufferId bias, float eps);
  // x (R,C), weight (G): normalises each run of G columns by itself, so C is a multiple of G. The normalised values are
  // rounded to x's dtype before they are multiplied by the weights, unless these are centred.
  BufferId rms_norm(BufferId x, BufferId weight, const RmsNormAttrs& attrs);
  // x (R, heads * head size), whose rows are positions 0 to seq_len - 1 of each sample, or those of its documents.
  // `attrs.seq_len` is set here. Throws InternalError where rotary_problem() finds something.
  BufferId rotary(BufferId x, int64_t seq_len, const RotaryAttrs& attrs,
                  BufferId documents = kNone);
  // Returns kind(gate) * up. `kind`: silu, gelu or gelu_erf.
  BufferId gated(BufferId gate, BufferId up, Activation kind);
  // With an adapter of the weight (FineTuning::lora), whose parts are parameters of the current unit: "q_proj.lora_A.weight"
  // (r, K) and "q_proj.lora_B.weight" (N, r) beside "q_proj.weight" (N, K).
  BufferId linear(BufferId x, BufferId weight, BufferId bias, Activation activation);
  // Experts (runtime/ir/ops/experts). Returns the logits (R,E) of rows x (R,K), their product with a weight (E,K) that gets no
  // adapter; which `slots` experts each row chooses by them, i32 (R,slots); and how much each of these counts, f32.
  // `bias`: f32 (E), or kNone.
  struct Routed {
    BufferId logits = kNone, weights = kNone, experts = kNone;
  };
  Routed route(BufferId x, BufferId weight, BufferId bias, int64_t slots, const RouteAttrs& attrs);
  // Returns the place of each choice among the rows of all experts, i32 (R,slots), and where those of each one end, i32 (E).
  struct GroupedRows {
    BufferId places = kNone, ends = kNone;
  };
  GroupedRows group_rows(BufferId experts, int64_t of);
  // Returns the rows of x (R,C) in the order of experts: (R*slots,C).
  BufferId spread_rows(BufferId x, BufferId places);
  // Returns the products of each expert's rows x (R*slots,K) and its weight, of all in (E*N,K): (R*slots,N).
  BufferId grouped_linear(BufferId x, BufferId weight, BufferId ends);
  // Returns for each row the sum over its slots of what experts have made of it, times weights: (R,C).
  BufferId combine_rows(BufferId x, BufferId places, BufferId weights);
  BufferId activation(BufferId x, Activation kind);
  BufferId scale(BufferId x, float factor);
  // Returns cap * tanh(x / cap). `cap`: above 0.
  BufferId softcap(BufferId x, float cap);
  // Causal self-attention. qkv (R,3C): queries, keys and values of `heads` heads each -> (R,C).
  BufferId attention(BufferId qkv, int64_t heads, int64_t seq_len, double dropout,
                     BufferId documents = kNone);
  // The same of q (R,heads*D), k and v (R,kv_heads*D) -> (R,heads*D). Each of the kv_heads heads of keys and values
  // serves heads / kv_heads neighbouring heads of queries.
  BufferId attention(BufferId q, BufferId k, BufferId v, const AttentionHeads& heads,
                     BufferId documents = kNone);
  // Returns dropout(x): x itself outside training, and where the probability is 0.
  BufferId dropout(BufferId x, int64_t seq_len, double dropout);
  BufferId add_dropout(BufferId x, BufferId h, int64_t seq_len, double dropout);
  // Returns formula(x0, x1, ...) of each element. x0 has all elements; the others have, or are broadcast over the rows or
  // columns (runtime/ir/views/broadcast.h), and where a gradient of these is needed they are parameters with a value for
  // each column.
  BufferId map(const Formula& formula, std::vector<BufferId> operands);
  // The general ops (runtime/ir/views/general_attrs.h): an operand is a buffer and the view that it is read through. Results
  // are contiguous, of the run's dtype unless another is given. They have the dimensions of the index space.
  struct Seen {
    BufferId buffer = kNone;
    View view{};
  };
  BufferId map(const Formula& formula, const Shape& space, const std::vector<Seen>& operands,
               std::optional<DType> result = std::nullopt);
  // Reduces all dimensions of the space but the first `kept`.
  BufferId reduce(Reduction kind, const Formula& formula, const Shape& space, int kept,
                  const std::vector<Seen>& operands, std::optional<DType> result = std::nullopt);
  // Return the same values, through which no gradient goes back: of a map's result, and of the largest or smallest values
  // that a softmax is shifted by.
  BufferId detached(BufferId x);
  BufferId detached_reduce(Reduction kind, const Formula& formula, const Shape& space, int kept,
                           const std::vector<Seen>& operands, DType result);
  // Returns the products of matrices a (batch, m, k) and b (batch, n, k) over k: (batch, m, n). Dimensions of the batch in
  // which b is the same become rows of one product. a and b have one dtype.
  BufferId contract(const Seen& a, const Seen& b, const Shape& batch, int64_t m, int64_t n,
                    int64_t k);
  // Returns the elements of x, in order, in rows of so many: x itself if they are, or if all that makes and reads it so far
  // takes elements without rows, else a copy.
  BufferId matrix(BufferId x, int64_t columns);
  BufferId take(BufferId table, const TakeAttrs& attrs, const std::vector<BufferId>& indices);
  // Returns a table of this shape with the sums of what `indices` name.
  BufferId put(BufferId values, const TakeAttrs& attrs, const std::vector<BufferId>& indices,
               const Shape& table);
  // Returns the running sums of lines of x, in the shape of x.
  BufferId scan(BufferId x, const ScanAttrs& attrs, std::optional<DType> result = std::nullopt);
  // Returns which elements of its line come first, i32 (n, kept, apart). They have no gradient.
  BufferId sort(BufferId x, const SortAttrs& attrs);
  // Returns the elements of x that sort() has named, through which gradients go back.
  BufferId sorted(BufferId x, BufferId indices, const SortAttrs& attrs);
  // Returns values drawn uniformly from [0, 1), f32 of this shape, in which `dimension` counts samples, or as many neighbouring
  // rows of each; kNoSamples: they are drawn for the micro-batch as a whole. They are the same whenever the forward pass of a
  // micro-batch is repeated, on any rank, and others at each call. They have no gradient.
  static constexpr int kNoSamples = -1;
  BufferId uniform(const Shape& shape, int dimension);
  // Returns the elements of all windows of x (planes, size..., samples, channels): (planes, out... * samples, kernel... * channels).
  BufferId window(BufferId x, const WindowAttrs& attrs);
  // Returns (planes, size... * samples, channels) with the sums of what windows (planes, out..., samples, kernel... * channels) have
  // of each element.
  BufferId window_sums(BufferId windows, const WindowAttrs& attrs);
  // Returns the largest elements of the windows of x (planes, size..., samples, channels): (planes, out..., samples, channels).
  BufferId max_pool(BufferId x, const WindowAttrs& attrs);
  // Returns the convolution of x (size..., samples, channels) with a weight (outputs, channels, kernel...), a parameter:
  // (out... * samples, outputs).
  BufferId convolution(BufferId x, BufferId weight, const ConvolutionAttrs& attrs);
  // Adds a loss: the sum of the elements of x over a global batch, divided by the number of its targets or samples, of which
  // all losses take the same. Its name and weight: as those of cross_entropy().
  void loss(BufferId x, LossWeight by, const std::string& name = "loss", float weight = 1);
  // Adds a loss, which where the options' objective compares answers is that of answers (answer_loss.h), and in training with a
  // teacher that of both (distilled_loss.h) (and in training the logits' gradient, in place). `classes`: columns of the logits that count; 0: all.
  // A model with several losses names each: what is differentiated is their sum, each times its `weight`. The last one
  // ends the model. Throws InternalError at a name that another loss has, and at more than kMostLosses of them.
  void cross_entropy(BufferId logits, BufferId targets, int64_t classes = 0,
                     const std::string& name = "loss", float weight = 1);
  // What a cross-entropy may have beside.
  struct CrossEntropy {
    int64_t classes = 0;
    std::string name = "loss";
    float weight = 1;
    LossWeight by = LossWeight::targets;
    BufferId factor = kNone;  // f32 (1), which the loss is multiplied by: a model's own mean
    std::optional<float> smoothing{};  // instead of the options'
  };
  void cross_entropy(BufferId logits, BufferId targets, const CrossEntropy& loss);
  // Returns f32 (R), or of k targets of each row (R,k): the logarithms of their probabilities among the first `classes` logits, 0
  // of targets below 0.
  // The logits are their gradient afterwards. `classes` as for cross_entropy().
  BufferId log_probs(BufferId logits, BufferId targets, int64_t classes);
  // Lets the host read f32 (B, rows of a sample) at the end of a step that does not train (Program::log_probs).
  void keep_log_probs(BufferId sums);
  // Adds a metric: a mean like that of a loss, of which no gradient goes back. x: f32. `over`: it is a mean over the sum of
  // this one, which is not reported itself. Returns its number. Metrics come before the last loss, and have names of their
  // own. Throws InternalError at more than kMostMetrics of them.
  int metric(BufferId x, LossWeight by, const std::string& name, std::optional<int> over = {});
  // Adds a sum for metrics that are means over it.
  int metric_count(BufferId x, LossWeight by, const std::string& name);
  // Lets the mean of a loss be reported as a metric of this name, too.
  void report_loss(const std::string& loss, const std::string& metric);
  static constexpr size_t kMostLosses = 6, kMostMetrics = 16;
  // Ends a model without a loss: the logits live to the step's end, for the host to read.
  void output(BufferId logits);

 private:
  // Adds a loss to the program's. Returns its sum.
  BufferId add_loss(const std::string& name, float weight, LossWeight by);
  void add_layer(Layer layer, const std::string& first_sublayer);
  void add_sublayer(const std::string& name);
  const ProgramInput& declare_input(const std::string& name, InputRole role, DType dtype,
                                    const Shape& of_row);
  // `rows`: those in memory.
  BufferId declare(const std::string& name, Shape shape, int64_t rows, Init init, float scale,
                   Trainable trainable);
  // Returns the weight of a product: itself, or where the fine-tuning keeps it in packed blocks what is unpacked of them.
  BufferId unpacked(BufferId weight);
  // Returns the name of the module whose weight gets an adapter; empty: it gets none.
  std::string adapted_module(BufferId weight) const;
  // Returns y + the adapter's part of the product of x and the weight.
  BufferId add_adapter(BufferId y, BufferId x, BufferId weight, const std::string& module);
  // Appends an op, which is checked.
  void append(Instruction op);
  BufferId emit(OpKind op, OpAttrs attrs, std::vector<BufferId> reads, Buffer output,
                std::vector<Buffer> more_outputs = {});
  // Returns whether the backward pass of the op that makes the logits reads them.
  bool is_kept(BufferId logits) const;
  // Returns where the logits' gradient goes: the logits themselves, unless they are kept.
  BufferId gradient_place(BufferId logits);
  std::string fresh(std::string_view what);
  std::string stem(BufferId weight) const;  // "param:blocks.0.attn.qkv.weight" -> "qkv"
  // Returns a buffer for a result of values of the dtype of `like`.
  Buffer activation_buffer(std::string_view what, Shape shape, BufferId like) {
    return {.name = fresh(what), .shape = shape, .dtype = program_.at(like).dtype};
  }

  Program& program_;
  ForwardOptions options_;
  FineTuning tuning_;
  std::string unit_name_;
  int32_t group_ = 0;
  int unit_index_ = -1, sublayer_ = -1;
  uint32_t next_site_ = 0;  // of dropout and draws, in forward order, whether dropout is on or not
  std::map<std::string, int> names_;
  std::vector<BufferId> overwritten_;  // logits that are their gradients by now
};

}  // namespace dstrain
