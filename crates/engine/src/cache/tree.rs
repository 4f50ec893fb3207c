//! A radix tree over token ids: values at prefixes, and how far a sequence follows any of them.

use std::collections::BTreeMap;

/// A node of a [`Tree`]; stays the same node until its value is taken out.
pub(crate) type NodeId = usize;

/// The node all others hang from. It has no value.
const ROOT: NodeId = 0;

/// Values at sequences of token ids.
#[derive(Debug)]
pub(crate) struct Tree<T> {
    nodes: Vec<Node<T>>,
    unused: Vec<NodeId>,
    /// Ids in labels.
    ids: usize,
}

#[derive(Debug)]
struct Node<T> {
    parent: NodeId,
    /// Ids between the parent and this node.
    label: Vec<u32>,
    /// Ids from the root to this node.
    depth: usize,
    /// By the first id of their labels.
    children: BTreeMap<u32, NodeId>,
    value: Option<T>,
}

/// How far a sequence follows a tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Ids at its beginning that the tree has too.
    pub(crate) matched: usize,
    /// Nodes with a value at prefixes of it, the shortest first.
    pub(crate) values: Vec<NodeId>,
}

impl<T> Tree<T> {
    pub(crate) fn new() -> Self {
        let root = Node {
            parent: ROOT,
            label: Vec::new(),
            depth: 0,
            children: BTreeMap::new(),
            value: None,
        };
        Self { nodes: vec![root], unused: Vec::new(), ids: 0 }
    }

    /// Ids the tree stores.
    pub(crate) fn ids(&self) -> usize {
        self.ids
    }

    /// Nodes with a value, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = (NodeId, &T)> {
        self.nodes.iter().enumerate().filter_map(|(id, node)| Some((id, node.value.as_ref()?)))
    }

    pub(crate) fn get(&self, node: NodeId) -> Option<&T> {
        self.nodes.get(node)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut T> {
        self.nodes.get_mut(node)?.value.as_mut()
    }

    /// The nearest value above a node's own.
    pub(crate) fn above(&self, mut node: NodeId) -> Option<&T> {
        while node != ROOT {
            node = self.nodes[node].parent;
            if let Some(value) = &self.nodes[node].value {
                return Some(value);
            }
        }
        None
    }

    /// The ids from the root to a node.
    #[cfg(test)]
    pub(crate) fn sequence(&self, mut node: NodeId) -> Vec<u32> {
        let mut labels = Vec::new();
        while node != ROOT {
            labels.push(self.nodes[node].label.as_slice());
            node = self.nodes[node].parent;
        }
        labels.reverse();
        labels.concat()
    }

    /// Follows `ids` as far as the tree goes.
    pub(crate) fn walk(&self, ids: &[u32]) -> Walk {
        let (mut node, mut walk) = (ROOT, Walk { matched: 0, values: Vec::new() });
        while let Some((child, common)) = self.step(node, &ids[walk.matched..]) {
            walk.matched += common;
            if common < self.nodes[child].label.len() {
                break;
            }
            node = child;
            if self.nodes[node].value.is_some() {
                walk.values.push(node);
            }
        }
        walk
    }

    /// The child that goes on with `ids`, and how many of its label's ids they share.
    fn step(&self, node: NodeId, ids: &[u32]) -> Option<(NodeId, usize)> {
        let child = *self.nodes[node].children.get(ids.first()?)?;
        let label = &self.nodes[child].label;
        Some((child, label.iter().zip(ids).take_while(|(a, b)| a == b).count()))
    }

    /// Puts a value at `ids`, which are not empty; the one that was there.
    pub(crate) fn insert(&mut self, ids: &[u32], value: T) -> (NodeId, Option<T>) {
        let mut node = ROOT;
        while self.nodes[node].depth < ids.len() {
            let rest = &ids[self.nodes[node].depth..];
            node = match self.step(node, rest) {
                None => self.add(node, rest.to_vec()),
                Some((child, common)) if common < self.nodes[child].label.len() => {
                    self.split(child, common)
                }
                Some((child, _)) => child,
            };
        }
        (node, self.nodes[node].value.replace(value))
    }

    /// Takes a node's value out, and the node where nothing else needs it.
    pub(crate) fn remove(&mut self, mut node: NodeId) -> Option<T> {
        let value = self.nodes.get_mut(node)?.value.take()?;
        while node != ROOT && self.nodes[node].value.is_none() {
            let parent = self.nodes[node].parent;
            match self.nodes[node].children.len() {
                0 => {
                    let label = std::mem::take(&mut self.nodes[node].label);
                    self.ids -= label.len();
                    self.nodes[parent].children.remove(&label[0]);
                    self.unused.push(node);
                }
                1 => {
                    self.join(node);
                    break;
                }
                _ => break,
            }
            node = parent;
        }
        Some(value)
    }

    fn add(&mut self, parent: NodeId, label: Vec<u32>) -> NodeId {
        self.ids += label.len();
        let (depth, first) = (self.nodes[parent].depth + label.len(), label[0]);
        let node = Node { parent, label, depth, children: BTreeMap::new(), value: None };
        let id = self.put(node);
        self.nodes[parent].children.insert(first, id);
        id
    }

    fn put(&mut self, node: Node<T>) -> NodeId {
        match self.unused.pop() {
            Some(id) => {
                self.nodes[id] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// Cuts a node's label; the new node stands between it and its parent.
    fn split(&mut self, node: NodeId, at: usize) -> NodeId {
        let lower = self.nodes[node].label.split_off(at);
        let upper = std::mem::take(&mut self.nodes[node].label);
        let (parent, depth) = (self.nodes[node].parent, self.nodes[node].depth - lower.len());
        let (first, below) = (upper[0], lower[0]);
        let between = self.put(Node {
            parent,
            label: upper,
            depth,
            children: BTreeMap::from([(below, node)]),
            value: None,
        });
        self.nodes[node].label = lower;
        self.nodes[node].parent = between;
        self.nodes[parent].children.insert(first, between);
        between
    }

    /// Replaces a node without a value by its only child.
    fn join(&mut self, node: NodeId) {
        let Some((_, child)) = self.nodes[node].children.pop_first() else { return };
        let parent = self.nodes[node].parent;
        let mut label = std::mem::take(&mut self.nodes[node].label);
        let first = label[0];
        label.append(&mut self.nodes[child].label);
        self.nodes[child].label = label;
        self.nodes[child].parent = parent;
        self.nodes[parent].children.insert(first, child);
        self.unused.push(node);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Sequences over three ids, so that they share much.
    fn sequence() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(0..3u32, 1..9)
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_of_sequences_holds(
            acts in prop::collection::vec((sequence(), any::<bool>()), 1..120),
            asked in prop::collection::vec(sequence(), 1..20),
        ) {
            let (mut tree, mut map) = (Tree::new(), BTreeMap::new());
            for (n, (ids, goes)) in acts.into_iter().enumerate() {
                let at = |tree: &Tree<usize>, node: &NodeId| tree.sequence(*node) == ids;
                if goes {
                    let node = tree.walk(&ids).values.pop().filter(|node| at(&tree, node));
                    prop_assert_eq!(node.and_then(|node| tree.remove(node)), map.remove(&ids));
                } else {
                    let (node, before) = tree.insert(&ids, n);
                    prop_assert!(at(&tree, &node));
                    prop_assert_eq!(before, map.insert(ids, n));
                }
            }
            let mut found: Vec<_> =
                tree.values().map(|(node, value)| (tree.sequence(node), *value)).collect();
            found.sort();
            prop_assert_eq!(found, map.clone().into_iter().collect::<Vec<_>>());
            // No id is stored twice under one prefix.
            let mut prefixes: Vec<&[u32]> =
                map.keys().flat_map(|ids| (1..=ids.len()).map(|n| &ids[..n])).collect();
            prefixes.sort_unstable();
            prefixes.dedup();
            prop_assert_eq!(tree.ids(), prefixes.len());
            for ids in &asked {
                let walk = tree.walk(ids);
                let shared = |other: &[u32]| {
                    other.iter().zip(ids).take_while(|(a, b)| a == b).count()
                };
                let longest = map.keys().map(|key| shared(key)).max().unwrap_or(0);
                prop_assert_eq!(walk.matched, longest);
                let found: Vec<Vec<u32>> =
                    walk.values.iter().map(|&node| tree.sequence(node)).collect();
                let wanted: Vec<Vec<u32>> =
                    map.keys().filter(|key| ids.starts_with(key)).cloned().collect();
                prop_assert_eq!(found, wanted);
                for &node in &walk.values {
                    let above = map.keys().filter(|key| {
                        key.len() < tree.sequence(node).len() && ids.starts_with(key)
                    });
                    let above = above.max_by_key(|key| key.len()).map(|key| map[key]);
                    prop_assert_eq!(tree.above(node).copied(), above);
                }
            }
        }
    }
}
