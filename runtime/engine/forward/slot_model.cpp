#include "runtime/engine/forward/slot_model.h"

#include <algorithm>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
#include "runtime/engine/forward/whole_passes.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/slot_plans.h"

namespace dstrain {
namespace {

// Rows of the plans that read prompts, and of one pass at most.
constexpr int64_t kFewestRows = 16, kMostRows = 2048;

// Returns the sizes for texts of a model with such a context. A text that outgrows it is read anew for each token.
SlotSizes sizes_for(const TextSizes& texts, int64_t context) {
  SlotSizes sizes{.slots = texts.texts,
                  .positions = std::min(texts.prompt + texts.tokens, context)};
  const bool outgrows = texts.prompt + texts.tokens > context;
  const int64_t most = std::min(kMostRows, outgrows ? context : texts.prompt);
  for (int64_t rows = kFewestRows;; rows *= 2) {
    sizes.passes.push_back(rows);
    if (rows >= most) return sizes;
  }
}

template <class T>
void narrow(const float* from, T* to, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) to[i] = from_float<T>(from[i]);
}

// Fills the copies of weights in 16 bits, which lose nothing in them.
void fill_narrow(const Plan& plan, const Arenas& arenas, int threads) {
  const Program& program = plan.program;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const BufferId wide = program.buffers[b].copy_of;
    if (wide == kNone || program.buffers[b].memory != MemoryClass::packed) continue;
    const Tensor to = arenas.tensor(plan, static_cast<BufferId>(b));
    const auto* const from = arenas.tensor(plan, wide).as<const float>();
    run_ranges(threads, to.elements(), [&](int64_t begin, int64_t end) {
      if (to.dtype == DType::bf16)
        narrow(from, to.as<bf16>(), begin, end);
      else
        narrow(from, to.as<f16>(), begin, end);
    });
  }
}

// Calls `check_bytes`; returns whether it has not thrown.
bool fits(const RankPlan& plans, const CheckDeviceBytes& check_bytes) {
  try {
    if (check_bytes) check_bytes(plans.memory.total());
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

SlotModel::SlotModel(const Job& job, const WeightsSource& place,
                     const Implementations& implementations, const SlotSizes& sizes, RankPlan plans,
                     int threads)
    : job_(in_f32(job)),
      sizes_(sizes),
      backend_(make_backend(implementations, job_.device)),
      plans_(std::move(plans)),
      arenas_(plans_.memory, *backend_.device, self_, threads),
      mesh_(self_, self_, {}),
      executors_(plans_.other.size() + 1),
      held_(static_cast<size_t>(sizes.slots)) {
  load_forward_weights(job_, place, implementations, plans_.validate, arenas_, mesh_, threads);
  fill_narrow(plans_.validate, arenas_, threads);
}

SlotModel::Pending SlotModel::pending_of(size_t i, const Text& text) const {
  const auto context = static_cast<size_t>(job_.model.context());
  const std::span<const int32_t> ids = text.ids.last(std::min(text.ids.size(), context));
  check(!ids.empty() && text.slot >= 0 && text.slot < sizes_.slots &&
            static_cast<int64_t>(ids.size()) <= sizes_.positions,
        "a text of {} tokens in slot {}", ids.size(), text.slot);
  const std::vector<int32_t>& held = held_[static_cast<size_t>(text.slot)];
  const auto same = static_cast<size_t>(std::ranges::mismatch(held, ids).in1 - held.begin());
  return {i, text.slot, ids, std::min(same, ids.size() - 1)};
}

void SlotModel::set_row(Rows& rows, size_t row, const Pending& text, size_t at) {
  rows.ids[row] = text.ids[at];
  rows.documents[row] = -static_cast<int32_t>(at);
  rows.slots[row] = static_cast<int32_t>(text.slot);
  std::vector<int32_t>& held = held_[static_cast<size_t>(text.slot)];
  held.resize(at);  // what follows is another text's
  held.push_back(text.ids[at]);
}

const float* SlotModel::run_plan(size_t i, Rows& rows) {
  const Plan& plan = plan_at(i);
  std::unique_ptr<Executor>& executor = executors_[i];
  if (!executor)
    executor = std::make_unique<Executor>(plan, arenas_, backend_, job_, mesh_, nullptr);
  std::vector<std::span<const int32_t>> inputs;
  for (const ProgramInput& input : plan.program.inputs)
    inputs.emplace_back(input.role == InputRole::token_ids   ? rows.ids
                        : input.role == InputRole::documents ? rows.documents
                        : input.name == kSlotsInput          ? rows.slots
                                                             : rows.last);
  StepState state;
  StepContext step{.state = &state, .inputs = inputs};
  executor->run(step);
  return arenas_.tensor(plan, plan.program.logits).as<const float>();
}

const float* SlotModel::read(Pending text) {
  const float* logits = nullptr;
  while (text.begin < text.ids.size()) {
    const auto left = static_cast<int64_t>(text.ids.size() - text.begin);
    const auto fits = std::ranges::lower_bound(sizes_.passes, left);
    const auto plan =
        static_cast<size_t>(std::min(fits, sizes_.passes.end() - 1) - sizes_.passes.begin());
    const auto rows = static_cast<size_t>(sizes_.passes[plan]),
               count = std::min(rows, static_cast<size_t>(left));
    Rows values{.ids = std::vector<int32_t>(rows),
                .documents = std::vector<int32_t>(rows),
                .slots = std::vector<int32_t>(rows, -1),
                .last = {static_cast<int32_t>(count) - 1}};
    for (size_t row = 0; row < count; ++row) set_row(values, row, text, text.begin + row);
    logits = run_plan(plan + 1, values);
    text.begin += count;
  }
  return logits;
}

void SlotModel::run(std::span<const Text> texts, const Take& take) {
  const auto vocabulary = static_cast<size_t>(job_.model.vocabulary());
  const auto all = static_cast<size_t>(sizes_.slots);
  Rows rows{.ids = std::vector<int32_t>(all),
            .documents = std::vector<int32_t>(all),
            .slots = std::vector<int32_t>(all, -1),
            .last = {}};
  std::vector<Pending> steps;
  for (size_t i = 0; i < texts.size(); ++i) {
    const Pending text = pending_of(i, texts[i]);
    if (text.begin + 1 < text.ids.size()) {
      take(i, {read(text), vocabulary});
    } else {
      set_row(rows, static_cast<size_t>(text.slot), text, text.begin);
      steps.push_back(text);
    }
  }
  if (steps.empty()) return;
  const float* const logits = run_plan(0, rows);
  const Shape shape = plans_.validate.program.at(plans_.validate.program.logits).shape;
  for (const Pending& text : steps) take(text.text, {logits + text.slot * shape[-1], vocabulary});
}

std::unique_ptr<NextToken> make_next_token(const Job& job, const WeightsSource& place,
                                           const Implementations& implementations,
                                           const TextSizes& sizes, int threads,
                                           const CheckDeviceBytes& check_bytes) {
  if (is_gpu(job.device) || !job.model.family().tells_documents())
    return std::make_unique<WholePasses>(job, place, implementations, threads, check_bytes);
  const Job plain = in_f32(job);
  const PlanInputs inputs{make_backend(implementations, job.device).library, threads, {}};
  // Copies in 16 bits take memory beside the weights: where there is too little, products read these themselves.
  for (DType weights = dtype_of_files(plain, place);; weights = DType::f32)
    for (TextSizes fewer = sizes;; fewer.texts = (fewer.texts + 1) / 2) {
      const SlotSizes slots = sizes_for(fewer, job.model.context());
      RankPlan plans = make_slot_plans(plain, slots, weights, inputs);
      if (fits(plans, check_bytes))
        return std::make_unique<SlotModel>(job, place, implementations, slots, std::move(plans),
                                           threads);
      if (fewer.texts > 1) continue;
      if (weights == DType::f32) check_bytes(plans.memory.total());
      break;
    }
}

}  // namespace dstrain
