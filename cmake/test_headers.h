// What nearly every test includes. Precompiled; no test relies on it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <nlohmann/json.hpp>
