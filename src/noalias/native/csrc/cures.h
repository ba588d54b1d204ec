// Which cures are on. Each is switched by name, under one lock.
#pragma once

#include <string>
#include <vector>

namespace noalias {

std::vector<std::string> known_cures();
std::vector<std::string> active_cures();

// Idempotent. Raises for a name that is not known.
void enable_cure(const std::string& name);
void disable_cure(const std::string& name);

} // namespace noalias
