//! The bus on NATS keeps the port's contract: every rule of the conformance suite, on every version of the server.

use crate::buses::{options, until_connected, until_disconnected};
use async_trait::async_trait;
use switchtower_cluster::{
    ClusterName, EventBus,
    conformance::{
        BusFactory, BusUnderTest,
        bus::{
            rule_04_clusters_never_hear_each_other, rule_11_a_subscription_is_in_force_when_it_returns,
            rule_12_every_matching_subscription_gets_every_message,
            rule_13_a_slow_subscriber_is_told_what_it_lost, rule_15_what_cannot_be_sent_is_refused,
            rule_18_headers_travel_with_their_message,
        },
        requests::{
            rule_14_a_late_answer_goes_nowhere, rule_14_a_request_without_answer_ends_typed,
            rule_14_answers_find_their_requests, rule_14_the_first_answer_ends_a_request,
            rule_16_a_request_under_way_when_the_connection_goes_ends,
            rule_16_while_cut_calls_fail_and_subscriptions_resume,
        },
    },
};
use switchtower_nats::NatsBus;
use switchtower_runtime::TaskGroup;
use switchtower_tests::servers::{
    nats::{Nats, programs},
    proxy::Proxy,
};

/// One server; every connection has a proxy of its own.
struct Server(Nats);

struct Connection {
    bus: NatsBus,
    proxy: Proxy,
}

#[async_trait]
impl BusFactory for Server {
    async fn connect(&self, cluster: &str) -> Box<dyn BusUnderTest> {
        let proxy = Proxy::start(self.0.address()).await.unwrap();
        let options = options(&format!("nats://{}", proxy.address()));
        let bus = NatsBus::connect(options, &ClusterName::from(cluster), &TaskGroup::new()).await.unwrap();
        until_connected(&bus).await;
        Box::new(Connection { bus, proxy })
    }
}

#[async_trait]
impl BusUnderTest for Connection {
    fn port(&self) -> &dyn EventBus {
        &self.bus
    }

    async fn cut(&self) {
        self.proxy.refuse().await;
        until_disconnected(&self.bus).await;
    }

    async fn restore(&self) {
        self.proxy.pass().await;
        until_connected(&self.bus).await;
    }
}

/// One test per rule, on a server of its own of every version.
macro_rules! conforms {
    ($($name:ident => $rule:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            for program in programs() {
                $rule(&Server(Nats::start(&program).await)).await;
            }
        }
    )*};
}

conforms! {
    bus_rule_04 => rule_04_clusters_never_hear_each_other,
    bus_rule_11 => rule_11_a_subscription_is_in_force_when_it_returns,
    bus_rule_12 => rule_12_every_matching_subscription_gets_every_message,
    bus_rule_13 => rule_13_a_slow_subscriber_is_told_what_it_lost,
    bus_rule_14_answer => rule_14_the_first_answer_ends_a_request,
    bus_rule_14_late => rule_14_a_late_answer_goes_nowhere,
    bus_rule_14_many => rule_14_answers_find_their_requests,
    bus_rule_14_no_answer => rule_14_a_request_without_answer_ends_typed,
    bus_rule_15 => rule_15_what_cannot_be_sent_is_refused,
    bus_rule_16 => rule_16_while_cut_calls_fail_and_subscriptions_resume,
    bus_rule_16_under_way => rule_16_a_request_under_way_when_the_connection_goes_ends,
    bus_rule_18 => rule_18_headers_travel_with_their_message,
}
