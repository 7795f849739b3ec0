// The sections of the key table: one function per section, each in the file of its name in this folder. That of the
// section dstrain are in the folder dstrain.
#pragma once

#include <vector>

#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {

std::vector<KeySpec> training();
std::vector<KeySpec> optimizer();
std::vector<KeySpec> optimizer_arguments();
std::vector<KeySpec> scheduler();
std::vector<KeySpec> precision();
std::vector<KeySpec> zero();
std::vector<KeySpec> offload();
std::vector<KeySpec> activation_checkpointing();
std::vector<KeySpec> pipeline();
std::vector<KeySpec> tensor_parallel();
std::vector<KeySpec> expert_parallel();
std::vector<KeySpec> monitoring();
std::vector<KeySpec> others();
std::vector<KeySpec> ignored();
std::vector<KeySpec> dstrain();
std::vector<KeySpec> data();
std::vector<KeySpec> fine_tuning();
std::vector<KeySpec> peft();
std::vector<KeySpec> saving();
std::vector<KeySpec> loss();

}  // namespace dstrain::keys
