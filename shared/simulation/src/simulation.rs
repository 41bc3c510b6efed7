//! The event loop: the requests of a trace, one router, the engines, and the network between them.

use crate::{
    Agenda, FleetError, FleetShape, LoadSeries, Network, NetworkDelays, Node, Record, RowSample, Served,
    engine_node::{EngineNode, News, Progress},
    network::{Link, Way},
    record::REFUSED_BY_ENGINE,
    router::Router,
    trace::{BLOCK_TOKENS, Trace, TraceRequest},
};
use switchtower_kv::event::EventBatch;
use switchtower_scheduling::{
    Answer, ChosenBy, Selection,
    policy_host::{PolicyFailure, PolicyParts},
};

/// The router's node.
const ROUTER: Node = Node::Router(0);

/// Something that happens.
enum Event {
    /// The next request of the trace reaches the router.
    Arrival,
    /// The router's queue has a deadline.
    Deadline,
    /// A request reaches the engine at a place.
    AtEngine { place: u32, number: usize },
    /// The engine at a place has something to do.
    Step { place: u32 },
    /// News of an engine reach the router.
    AtRouter { place: u32, news: News },
    /// Time to look at every row.
    Sample,
}

/// A router, a fleet and a network, before the first request.
pub(crate) struct Simulation<'a> {
    fleet: FleetShape,
    requests: &'a [TraceRequest],
    agenda: Agenda<Event>,
    network: Network,
    router: Router,
    engines: Vec<EngineNode>,
    progress: Vec<Request>,
    next_arrival: usize,
    ended: usize,
    deadline_us: Option<u64>,
    fallback_choices: u64,
    series: LoadSeries,
    /// Reused between calls.
    news: Vec<News>,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug)]
enum Request {
    Open(Served),
    Ended(Record),
}

/// What came of it all.
pub(crate) struct Outcome {
    /// In trace order.
    pub(crate) records: Vec<Record>,
    pub(crate) series: LoadSeries,
    /// Rows that the fallback chose, and what the policy said when it failed last.
    pub(crate) fallback_choices: u64,
    pub(crate) last_failure: Option<PolicyFailure>,
    /// Nothing was booked, waiting or refused by the index at the end.
    pub(crate) at_rest: bool,
}

impl<'a> Simulation<'a> {
    pub(crate) fn new(
        fleet: FleetShape,
        (delays, seed): (NetworkDelays, u64),
        policy: PolicyParts,
        trace: &'a Trace,
    ) -> Result<Self, FleetError> {
        fleet.validate()?;
        let engine = |place| Ok(EngineNode::new(fleet.row(place), fleet.engine())?);
        let rows = (0..fleet.rows()).map(|place| fleet.row(place)).collect();
        let mut agenda = Agenda::new();
        agenda.put(0, Event::Sample);
        agenda.put(0, Event::Arrival);
        Ok(Self {
            fleet,
            requests: &trace.requests,
            agenda,
            network: Network::new(delays, seed),
            router: Router::new(BLOCK_TOKENS, fleet.row_infos(), policy),
            engines: (0..fleet.rows()).map(engine).collect::<Result<_, FleetError>>()?,
            progress: vec![Request::Open(Served::default()); trace.requests.len()],
            next_arrival: 0,
            ended: 0,
            deadline_us: None,
            fallback_choices: 0,
            series: LoadSeries::new(rows, trace.span_us),
            news: Vec::new(),
        })
    }

    /// Plays everything to its end; `progress` hears how many requests have ended, now and then.
    pub(crate) fn run(mut self, progress: &mut dyn FnMut(usize)) -> Outcome {
        let mut told = 0;
        while let Some(event) = self.agenda.take() {
            self.happen(event);
            self.send_answers();
            if self.ended - told >= 64 {
                told = self.ended;
                progress(told);
            }
        }
        progress(self.ended);
        let records = self.progress.iter().map(|request| match request {
            Request::Ended(record) => *record,
            // Every request ends (design invariant 5); one that did not would not count as served.
            Request::Open(_) => Record::Rejected("lost"),
        });
        Outcome {
            records: records.collect(),
            at_rest: self.router.is_at_rest(),
            fallback_choices: self.fallback_choices,
            last_failure: self.router.policy_health().last_failure.clone(),
            series: self.series,
        }
    }

    fn happen(&mut self, event: Event) {
        let now_us = self.agenda.now_us();
        match event {
            Event::Arrival => self.arrive(now_us),
            Event::Deadline => {
                self.deadline_us = None;
                self.router.dispatch(now_us);
            }
            Event::AtEngine { place, number } => self.enter_engine(now_us, place, number),
            Event::Step { place } => self.step(now_us, place),
            Event::AtRouter { place, news: News::Log(batch) } => self.router.apply(place, batch),
            Event::AtRouter { news: News::Stream(number, told), .. } => self.hear(now_us, number, told),
            Event::Sample => self.sample(),
        }
    }

    fn arrive(&mut self, now_us: u64) {
        let number = self.next_arrival;
        let Some(request) = self.requests.get(number) else {
            return;
        };
        self.next_arrival += 1;
        if let Some(next) = self.requests.get(self.next_arrival) {
            self.agenda.put(next.arrival_us, Event::Arrival);
        }
        self.router.submit(now_us, number, request);
    }

    /// Sends what the router has decided on its way.
    fn send_answers(&mut self) {
        let answers: Vec<(usize, Answer)> = self.router.answers().collect();
        for (number, answer) in answers {
            match answer.result {
                Ok(selection) => self.send_to_engine(number, &selection),
                Err(rejection) => self.end(number, Record::Rejected(rejection.outcome().row().label)),
            }
        }
        let deadline_us = self.router.next_deadline_us();
        if let Some(at_us) = deadline_us
            && self.deadline_us.is_none_or(|armed_us| at_us < armed_us)
        {
            self.deadline_us = Some(at_us);
            self.agenda.put(at_us, Event::Deadline);
        }
    }

    fn send_to_engine(&mut self, number: usize, selection: &Selection) {
        self.fallback_choices += u64::from(selection.chosen_by != ChosenBy::Policy);
        let place = self.fleet.place(selection.row);
        let waited_us = self.since_arrival_us(number);
        if let Some(Request::Open(served)) = self.progress.get_mut(number) {
            (served.place, served.queue_wait_us) = (place, waited_us);
        }
        let link = Link { from: ROUTER, to: Node::Engine(place), way: Way::Stream };
        self.network.send(&mut self.agenda, link, Event::AtEngine { place, number });
    }

    fn enter_engine(&mut self, now_us: u64, place: u32, number: usize) {
        let refused = self.engines[place as usize].submit(now_us, number, &self.requests[number]);
        if let Some(news) = refused {
            self.tell_router(place, news);
        }
        self.arm(place);
    }

    fn step(&mut self, now_us: u64, place: u32) {
        let mut news = std::mem::take(&mut self.news);
        self.engines[place as usize].advance(now_us, self.requests, &mut news);
        for news in news.drain(..) {
            self.tell_router(place, news);
        }
        self.news = news;
        self.arm(place);
    }

    fn arm(&mut self, place: u32) {
        if let Some(due_us) = self.engines[place as usize].arm() {
            self.agenda.put(due_us, Event::Step { place });
        }
    }

    fn tell_router(&mut self, place: u32, news: News) {
        let way = if matches!(news, News::Log(EventBatch { .. })) { Way::Bus } else { Way::Stream };
        let link = Link { from: Node::Engine(place), to: ROUTER, way };
        self.network.send(&mut self.agenda, link, Event::AtRouter { place, news });
    }

    fn hear(&mut self, now_us: u64, number: usize, told: Progress) {
        self.router.hear(now_us, number, told);
        let spent_us = self.since_arrival_us(number);
        let Some(Request::Open(served)) = self.progress.get_mut(number) else {
            return;
        };
        match told {
            Progress::FirstToken { cached_tokens } => {
                (served.ttft_us, served.cached_tokens) = (spent_us, cached_tokens);
            }
            Progress::OutputGrew { .. } => {}
            Progress::Finished => {
                let record = Record::Served(Served { e2e_us: spent_us, ..*served });
                self.end(number, record);
            }
            Progress::Refused => self.end(number, Record::Rejected(REFUSED_BY_ENGINE)),
        }
    }

    fn end(&mut self, number: usize, record: Record) {
        if let Some(request @ Request::Open(_)) = self.progress.get_mut(number) {
            *request = Request::Ended(record);
            self.ended += 1;
        }
    }

    fn since_arrival_us(&self, number: usize) -> u64 {
        let arrival_us = self.requests.get(number).map_or(0, |request| request.arrival_us);
        self.agenda.now_us().saturating_sub(arrival_us)
    }

    fn sample(&mut self) {
        let sample = self.engines.iter().map(|engine| {
            let load = engine.load();
            RowSample {
                requests: load.running + load.waiting,
                waiting_prefill_tokens: load.prefill_tokens_waiting,
                uncached_tokens: engine.uncached_tokens(),
            }
        });
        let next_us = self.series.take(sample.collect());
        if self.ended < self.requests.len() {
            self.agenda.put(next_us, Event::Sample);
        }
    }
}
