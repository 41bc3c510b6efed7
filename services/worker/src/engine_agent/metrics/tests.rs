//! Metrics as engines write them, and what is none.

use super::*;

const BLOCKS: KnownBlocks = KnownBlocks { block_size: 16, total: None };

const VLLM: &str = r#"# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/a \"b\", }m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="500",num_gpu_blocks_override="None"} 1.0
vllm:request_success_created{engine="0"} 1.7e+09
process_start_time_seconds 1.75e+09
"#;

const SGLANG: &str = r#"sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0",priority=""} 4
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0",priority="1"} 3
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1",priority=""} 4
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.0 1700000000000
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.5
sglang:max_total_num_tokens{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 16000.0
"#;

fn load(rank: u32, running: u64, waiting: u64, blocks: (u64, u64)) -> RankLoad {
    let (blocks_used, blocks_total) = blocks;
    RankLoad {
        rank: Rank(rank),
        running,
        waiting,
        blocks_used,
        blocks_total,
        prefill_tokens: 0,
        kv_sequence: 0,
    }
}

#[test]
fn both_engines_say_how_loaded_they_are() {
    assert_eq!(EngineMetrics::parse(VLLM).loads(1, BLOCKS), [load(0, 3, 2, (250, 1_000))]);
    assert_eq!(EngineMetrics::parse(SGLANG).loads(1, BLOCKS), [load(0, 4, 0, (500, 1_000))]);
    let former = VLLM.replace("kv_cache_usage_perc", "gpu_cache_usage_perc");
    assert_eq!(EngineMetrics::parse(&former), EngineMetrics::parse(VLLM));
}

#[test]
fn configured_blocks_win_and_unknown_ones_are_a_report_without_them() {
    let configured = KnownBlocks { total: Some(80), ..BLOCKS };
    assert_eq!(EngineMetrics::parse(VLLM).loads(1, configured), [load(0, 3, 2, (20, 80))]);
    for silent in ["num_gpu_blocks=\"500\"", "kv_cache_usage_perc"] {
        let text = VLLM.replace(silent, "other=\"None\"");
        assert_eq!(EngineMetrics::parse(&text).loads(1, BLOCKS), [load(0, 3, 2, (0, 0))], "{silent}");
    }
}

#[test]
fn ranks_are_reported_one_by_one_or_as_one() {
    let second =
        VLLM.replace("engine=\"0\"", "engine=\"1\"").replace("} 3.0", "} 5.0").replace("0.25", "0.75");
    let both = EngineMetrics::parse(&[VLLM, &second].concat());
    assert_eq!(both.named_ranks(), 2);
    assert_eq!(both.loads(2, BLOCKS), [load(0, 3, 2, (250, 1_000)), load(1, 5, 2, (750, 1_000))]);
    assert_eq!(both.loads(1, BLOCKS), [load(0, 8, 4, (1_000, 2_000))]);
    assert_eq!(both.loads(4, BLOCKS).len(), 2, "of the others nothing is known");
    assert_eq!(EngineMetrics::parse(SGLANG).loads(2, BLOCKS), [], "it names no ranks");
}

#[test]
fn an_engine_that_does_not_say_how_much_it_has_to_do_is_not_reported() {
    let half = VLLM.replace("num_requests_waiting{", "something_else{");
    for text in ["", "up 1\n", half.as_str(), "vllm:kv_cache_usage_perc 0.5\n"] {
        assert_eq!(EngineMetrics::parse(text).loads(1, BLOCKS), [], "{text}");
    }
}

#[test]
fn a_later_process_is_a_restart() {
    let first = EngineMetrics::parse(VLLM);
    let later = EngineMetrics::parse(&VLLM.replace("1.75e+09", "1750000007.5"));
    assert!(
        later.is_restart_after(&first) && !first.is_restart_after(&later) && !first.is_restart_after(&first)
    );
    assert!(!later.is_restart_after(&EngineMetrics::default()));
    assert!(!EngineMetrics::default().is_restart_after(&first));
}

#[test]
fn b98_lines_that_are_none_are_passed_over() {
    let nonsense = [
        "vllm:num_requests_running",
        "vllm:num_requests_running{",
        "vllm:num_requests_running{a=\"",
        "}",
        "vllm:num_requests_running{a=\"\\",
        "vllm:num_requests_running{} ",
        "vllm:num_requests_running NaN",
        "vllm:num_requests_running +Inf",
        "vllm:num_requests_running -1",
        "vllm:num_requests_running 1e999",
        "vllm:num_requests_running{engine=\"99999\"} 1",
        "vllm:num_requests_running{engine=\"-1\"} 1",
        "vllm:cache_config_info{block_size=\"x\",num_gpu_blocks=\"5\"} 1",
        "{} 1",
        " 1",
        "ü{ü=\"ü\"} ü",
    ];
    for line in nonsense {
        assert_eq!(EngineMetrics::parse(line), EngineMetrics::default(), "{line}");
    }
    let text = format!("{}\n{VLLM}", nonsense.join("\n"));
    assert_eq!(EngineMetrics::parse(&text), EngineMetrics::parse(VLLM));
    let huge = EngineMetrics::parse("vllm:num_requests_running 1e300\nvllm:num_requests_waiting 0\n");
    assert_eq!(huge.loads(1, BLOCKS), [load(0, u64::MAX, 0, (0, 0))]);
}
